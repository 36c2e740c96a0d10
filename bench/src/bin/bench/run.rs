//! One case: starts all contenders, and lets them run in turns.

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use tenure_bench::clock;
use tenure_bench::outcome::Outcome;
use tenure_testkit::RedisServer;
use tenure_testkit::cable::Cable;

use crate::cases::{Case, Place};
use crate::commands;
use crate::contenders::Programs;
use crate::driver::Driver;
use crate::machine::Busy;
use crate::results::{CaseResult, Lap, Row};
use crate::server::Info;
use crate::team::Team;

/// What the whole run was told.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) programs: Programs,
    pub(crate) out: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    /// The most that a drain may take.
    pub(crate) drain_seconds: f64,
    pub(crate) holds: usize,
    pub(crate) hold_seconds: f64,
    pub(crate) lease_ms: u64,
    pub(crate) only: Vec<String>,
}

const NODES: usize = 5;
const WIRE: Duration = Duration::from_millis(1);
/// How long the holder lives before it is killed: its lease was not renewed yet.
const BEFORE_KILL: Duration = Duration::from_millis(150);
/// Ours and Redisson's: a third of 30 seconds.
const RENEWAL_PERIOD: f64 = 10.0;

/// Servers, wires and a folder for one case.
pub(crate) struct Stage {
    pub(crate) servers: Vec<RedisServer>,
    _cables: Vec<Cable>,
    pub(crate) urls: Vec<String>,
    pub(crate) folder: tempfile::TempDir,
}

impl Stage {
    fn set(place: Place) -> std::io::Result<Self> {
        let count = match place {
            Place::Redis => 1,
            Place::Wires => NODES,
            Place::Local => 0,
        };
        let servers: Vec<RedisServer> = (0..count).map(|_| RedisServer::start()).collect();
        let cables: Vec<Cable> = match place {
            Place::Wires => servers.iter().map(|server| Cable::slow(server.port, WIRE)).collect(),
            _ => Vec::new(),
        };
        let urls = match place {
            Place::Wires => cables.iter().map(|cable| format!("redis://127.0.0.1:{}", cable.port)).collect(),
            _ => servers.iter().map(RedisServer::url).collect(),
        };
        // Shared memory, if there is some: what processes leave for each other must cost nothing.
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir())?;
        Ok(Self { servers, _cables: cables, urls, folder })
    }
}

pub(crate) fn case(settings: &Settings, case: &Case, machine: &str) -> std::io::Result<CaseResult> {
    println!("\n{}: {}", case.id, case.title);
    let stage = Stage::set(case.place)?;
    let chosen = case.contenders.iter().filter(|name| settings.only.is_empty() || settings.only.iter().any(|only| only == *name));
    let mut result = CaseResult {
        id: case.id.to_owned(),
        title: case.title.to_owned(),
        machine: machine.to_owned(),
        limit: case.limit.to_owned(),
        scenario: case.scenario.to_owned(),
        processes: case.processes,
        rows: chosen.map(|name| Row { contender: (*name).to_owned(), laps: Vec::new(), trouble: None }).collect(),
        probes: Vec::new(),
        note: String::new(),
        periods: settings.hold_seconds / RENEWAL_PERIOD,
        same_scripts: (case.id == "P1").then(|| same_scripts(settings).is_ok()),
    };
    match case.scenario {
        "command" => commands::run(settings, &stage, &mut result),
        "hold" => one_after_another(settings, case, &stage, &mut result),
        _ => in_turns(settings, case, &stage, &mut result),
    }
    for row in &result.rows {
        println!("  {:<16} {}", row.contender, short(row));
    }
    let (disturbed, all) = result.disturbed();
    if disturbed > 0 {
        println!("  DISTURBED: others were on the CPU in {disturbed} of {all} rounds");
    }
    Ok(result)
}

fn short(row: &Row) -> String {
    let trouble = row.trouble.as_deref().unwrap_or_default();
    if row.laps.is_empty() {
        return trouble.to_owned();
    }
    let found = match row.median_if(|lap| lap.after_lease_ms) {
        Some(late) => format!("{late:>8.1} ms after the lease"),
        None => format!("{:>12.0}/s", row.median(|lap| lap.rate)),
    };
    format!("{found} {} {trouble}", row.faults().join(", "))
}

/// The order changes from round to round, so that no contender always follows the same one.
fn in_turns(settings: &Settings, case: &Case, stage: &Stage, result: &mut CaseResult) {
    let mut teams: Vec<Option<Team<'_>>> = Vec::new();
    for row in &mut result.rows {
        let name = case.contenders.iter().find(|name| **name == row.contender).expect("chosen from them");
        let team = Team::start(settings, case, name, &stage.urls, stage.folder.path());
        row.trouble = team.as_ref().err().cloned();
        teams.push(team.ok());
    }
    let mut probe = (case.id == "P4").then(|| start_probe(settings, stage)).and_then(Result::ok);
    let mut number = 0;
    for round in 0..settings.rounds {
        if let Some(probe) = &mut probe {
            result.probes.extend(ask_probe(probe));
        }
        for turn in 0..teams.len() {
            let at = if round % 2 == 0 { turn } else { teams.len() - 1 - turn };
            let Some(team) = &mut teams[at] else { continue };
            number += 1;
            let lap = match case.scenario {
                "drain" => drain(team, stage, number, settings),
                "crash" => crash(team, number, settings),
                _ => cycles(team, stage, number, settings),
            };
            let stuck = lap.as_ref().is_ok_and(|lap| lap.stuck > 0);
            let row = &mut result.rows[at];
            match lap {
                Ok(lap) => row.laps.push(lap),
                Err(trouble) => row.trouble = Some(trouble),
            }
            // Those who are stuck, and a contender that failed, would disturb the next round.
            if (stuck || row.trouble.is_some())
                && let Err(trouble) = team.restart()
            {
                row.trouble = Some(trouble);
                teams[at] = None;
            }
        }
    }
}

fn cycles(team: &mut Team<'_>, stage: &Stage, round: u64, settings: &Settings) -> Result<Lap, String> {
    let sends_set = team.contender.sends_set;
    let before = Info::of(&stage.servers, sends_set);
    let busy = Busy::now();
    team.go(round)?;
    let outcomes = team.outcomes(settings.seconds)?;
    let info = Info::of(&stage.servers, sends_set).since(&before);
    Ok(Lap { others: others(&busy, &outcomes, &info), ..Lap::of(&outcomes, &info, Some(settings.seconds)) })
}

/// All get in line behind a holder; what is measured begins when that lets go.
fn drain(team: &mut Team<'_>, stage: &Stage, round: u64, settings: &Settings) -> Result<Lap, String> {
    team.gate(round)?;
    team.go(round)?;
    team.wait_for("waiting", Duration::from_secs(30))?;
    let before = Info::of(&stage.servers, team.contender.sends_set);
    let busy = Busy::now();
    team.release()?;
    let outcomes = team.outcomes(settings.drain_seconds)?;
    let info = Info::of(&stage.servers, team.contender.sends_set).since(&before);
    Ok(Lap { others: others(&busy, &outcomes, &info), ..Lap::of(&outcomes, &info, None) })
}

/// What the contender and its servers used is not others'.
fn others(busy: &Busy, outcomes: &[Outcome], info: &Info) -> Option<f64> {
    Some(busy.others(outcomes.iter().map(|outcome| outcome.cpu_us).sum::<f64>() + info.cpu_us))
}

fn crash(team: &mut Team<'_>, round: u64, settings: &Settings) -> Result<Lap, String> {
    let lease = settings.lease_ms as f64;
    let before = clock::now();
    team.gate(round)?;
    let gated = clock::now();
    let [holder, next] = team.pair()?;
    next.tell(&format!("go {round} {gated}"))?;
    std::thread::sleep(BEFORE_KILL);
    let killed = clock::now();
    holder.kill();
    let outcome = next.outcome(Duration::from_millis(settings.lease_ms) + Duration::from_secs(60))?;
    let granted = outcome.granted_ns.ok_or("does not say when")?;
    let millis = |since: u64| granted.saturating_sub(since) as f64 / 1e6;
    let lap = Lap {
        rate: 1000.0 / millis(killed).max(0.001),
        after_kill_ms: Some(millis(killed)),
        // The lease began between these two.
        after_lease_ms: Some(millis(before.midpoint(gated)) - lease),
        ..Lap::of(&[outcome], &Info::default(), Some(1.0))
    };
    team.restart()?;
    Ok(lap)
}

/// Each by itself and once: it takes a minute.
fn one_after_another(settings: &Settings, case: &Case, stage: &Stage, result: &mut CaseResult) {
    result.note = format!("{} locks held for {} s", settings.holds, settings.hold_seconds);
    for row in &mut result.rows {
        let name = case.contenders.iter().find(|name| **name == row.contender).expect("chosen from them");
        let held =
            Team::start(settings, case, name, &stage.urls, stage.folder.path()).and_then(|team| hold(team, stage, settings));
        match held {
            Ok(lap) => row.laps.push(lap),
            Err(trouble) => row.trouble = Some(trouble),
        }
        for server in &stage.servers {
            redis::cmd("FLUSHALL").exec(&mut server.raw()).expect("the server answers");
        }
    }
}

fn hold(mut team: Team<'_>, stage: &Stage, settings: &Settings) -> Result<Lap, String> {
    let info = |team: &Team<'_>| Info::of(&stage.servers, team.contender.sends_set);
    let empty = info(&team);
    team.go(1)?;
    team.wait_for("waiting", Duration::from_secs(300))?;
    let full = info(&team);
    std::thread::sleep(Duration::from_secs_f64(settings.hold_seconds));
    let after = info(&team);
    team.release()?;
    let outcomes = team.outcomes(300.0)?;
    let lap = Lap::of(&outcomes, &after.since(&full), None);
    let holds = lap.cycles.max(1) as f64;
    let grown: i64 = outcomes.iter().filter_map(|outcome| outcome.grown_kib).sum();
    let client_bytes = Some(grown as f64 * 1024.0 / holds);
    Ok(Lap { client_bytes, server_bytes: Some(full.since(&empty).memory / holds), ..lap })
}

/// On a server that only the library has talked to.
fn same_scripts(settings: &Settings) -> Result<(), String> {
    let stage = Stage::set(Place::Redis).map_err(|e| e.to_string())?;
    let log = File::create(settings.out.join("scripts.log")).map_err(|e| e.to_string())?;
    for (contender, scenario) in [("tenure", "cycles"), ("raw", "scripts")] {
        let mut command = settings.programs.driver(crate::contenders::named(contender).ok_or("is not known")?)?;
        command.args(["--contender", contender, "--scenario", scenario, "--url", &stage.urls[0]]);
        Driver::start(command, &log)?.expect("ready", Duration::from_secs(30))?;
    }
    Ok(())
}

fn start_probe(settings: &Settings, stage: &Stage) -> Result<Driver, String> {
    let raw = crate::contenders::named("raw").ok_or("is not known")?;
    let mut command = settings.programs.driver(raw)?;
    let seconds = settings.seconds.min(1.0).to_string();
    command.args(["--contender", "raw", "--scenario", "probe", "--url", &stage.urls[0], "--seconds", &seconds]);
    let log = File::create(settings.out.join("probe.log")).map_err(|e| e.to_string())?;
    let probe = Driver::start(command, &log)?;
    probe.expect("ready", Duration::from_secs(30))?;
    Ok(probe)
}

fn ask_probe(probe: &mut Driver) -> Option<[f64; 2]> {
    probe.tell(&format!("go 0 {}", clock::now())).ok()?;
    let outcome = probe.outcome(Duration::from_secs(30)).ok()?;
    Some([outcome.round_trip_us?, outcome.push_us?])
}
