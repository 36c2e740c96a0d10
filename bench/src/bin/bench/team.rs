//! The processes of one contender in one case.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_bench::clock;
use tenure_bench::outcome::Outcome;

use crate::cases::{Case, Place};
use crate::contenders::{self, Contender};
use crate::driver::Driver;
use crate::run::Settings;

/// From the order to the start of a round: all processes must have heard it.
const LEAD: u64 = 20_000_000;
/// How long a driver may take to start beside the others, or to answer.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Team<'a> {
    pub(crate) contender: Contender,
    /// As it is shown.
    pub(crate) name: &'static str,
    settings: &'a Settings,
    case: &'a Case,
    urls: String,
    folder: PathBuf,
    drivers: Vec<Driver>,
}

impl<'a> Team<'a> {
    /// Starts all processes, which then wait. An error is why it cannot take part.
    pub(crate) fn start(
        settings: &'a Settings,
        case: &'a Case,
        name: &'static str,
        urls: &[String],
        folder: &Path,
    ) -> Result<Self, String> {
        // Ours, over one wire.
        let driver = if name == "one node" { "tenure" } else { name };
        let contender = contenders::named(driver).ok_or("is not known")?;
        let urls = match case.place {
            Place::Redis => urls.join(","),
            Place::Wires => (if name == "one node" { &urls[..1] } else { urls }).join(","),
            Place::Local => {
                let scheme = if driver.starts_with("tenure") || driver == "rusqlite" { "sqlite" } else { "file" };
                let path = folder.join(name);
                std::fs::create_dir_all(&path).map_err(|e| e.to_string())?;
                let path = if scheme == "sqlite" { path.join("locks") } else { path };
                format!("{scheme}:{}", path.display())
            }
        };
        let mut team = Self { contender, name, settings, case, urls, folder: folder.to_owned(), drivers: Vec::new() };
        team.restart()?;
        Ok(team)
    }

    /// Ends all processes, and starts them anew.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.drivers.clear();
        let processes = if self.case.scenario == "crash" { 2 } else { self.case.processes };
        for process in 0..processes {
            let driver = self.driver(process, processes)?;
            self.drivers.push(driver);
        }
        let limit = PATIENCE + Duration::from_secs_f64(self.contender.warmup());
        self.drivers.iter().try_for_each(|driver| driver.expect("ready", limit))
    }

    fn check_file(&self) -> PathBuf {
        self.folder.join(format!("check-{}", self.name.replace(' ', "-")))
    }

    fn driver(&self, process: usize, processes: usize) -> Result<Driver, String> {
        let Self { settings, case, contender, .. } = self;
        let mut command = settings.programs.driver(*contender)?;
        let log = File::options().create(true).append(true).open(settings.out.join("drivers.log")).map_err(|e| e.to_string())?;
        if let Some(shim) = settings.programs.heap(*contender) {
            let count = self.folder.join(format!("heap-{}-{process}", self.name.replace(' ', "-")));
            std::fs::write(&count, 0_u64.to_ne_bytes()).map_err(|e| e.to_string())?;
            command.env("LD_PRELOAD", shim).env("TENURE_BENCH_HEAP", count);
        }
        let seconds = if case.scenario == "drain" { settings.drain_seconds } else { settings.seconds };
        let mut option = |name: &str, value: &str| {
            command.arg(format!("--{name}")).arg(value);
        };
        option("contender", contender.name);
        option("scenario", case.scenario);
        option("url", &self.urls);
        option("tasks", &case.tasks.to_string());
        option("seconds", &seconds.to_string());
        option("warmup", &contender.warmup().to_string());
        option("names", if case.one_name { "one" } else { "own" });
        option("section-us", &case.section_us.to_string());
        option("mode", case.mode);
        option("process", &process.to_string());
        option("processes", &processes.to_string());
        option("holds", &settings.holds.to_string());
        if case.processes > 1 {
            self.clear_check()?;
            option("check", &self.check_file().display().to_string());
        }
        if case.scenario == "crash" {
            option("lease-ms", &settings.lease_ms.to_string());
        }
        Driver::start(command, &log)
    }

    /// Nobody is inside.
    fn clear_check(&self) -> Result<(), String> {
        std::fs::write(self.check_file(), [0; 4096]).map_err(|e| e.to_string())
    }

    /// Begins a round in all processes at the same time.
    pub(crate) fn go(&mut self, round: u64) -> Result<(), String> {
        if self.case.processes > 1 {
            self.clear_check()?;
        }
        let start = clock::now() + LEAD;
        self.drivers.iter_mut().try_for_each(|driver| driver.tell(&format!("go {round} {start}")))
    }

    pub(crate) fn outcomes(&self, seconds: f64) -> Result<Vec<Outcome>, String> {
        let limit = Duration::from_secs_f64(seconds) + PATIENCE;
        self.drivers.iter().map(|driver| driver.outcome(limit)).collect()
    }

    /// The first process takes the name of a round.
    pub(crate) fn gate(&mut self, round: u64) -> Result<(), String> {
        let first = self.drivers.first_mut().ok_or("has no process")?;
        first.tell(&format!("gate {round}"))?;
        first.expect("gated", PATIENCE)
    }

    pub(crate) fn wait_for(&self, word: &str, limit: Duration) -> Result<(), String> {
        self.drivers.iter().try_for_each(|driver| driver.expect(word, limit))
    }

    pub(crate) fn release(&mut self) -> Result<(), String> {
        self.drivers.iter_mut().try_for_each(|driver| driver.tell("release"))
    }

    /// The process that holds, and the one that waits.
    pub(crate) fn pair(&mut self) -> Result<&mut [Driver; 2], String> {
        self.drivers.first_chunk_mut().ok_or_else(|| "has no two processes".to_owned())
    }
}
