//! What the numbers were measured on, and who else was busy on it.

use std::process::Command;

use tenure_bench::clock;

use crate::run::Settings;

/// One line: cores, system, server, rounds, load.
pub(crate) fn about(settings: &Settings) -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let models = cpus.lines().filter_map(|line| line.strip_prefix("model name")).filter_map(|rest| rest.split_once(": "));
    let models: Vec<&str> = models.map(|(_, name)| name.trim()).collect();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let server = first_line("redis-server", "--version");
    let server = server.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("?");
    format!(
        "{} cores ({}), Linux {}, Redis {server} on loopback without persistence, {} rounds of {} s, load average {} at the start",
        models.len(),
        models.first().unwrap_or(&"?"),
        kernel.trim(),
        settings.rounds,
        settings.seconds,
        load.split(' ').next().unwrap_or("?"),
    )
}

/// The CPU time of the whole machine, of which a part is ours.
#[derive(Debug)]
pub(crate) struct Busy {
    since: u64,
    all_us: f64,
    own_us: f64,
}

impl Busy {
    pub(crate) fn now() -> Self {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
        let ticks: Vec<f64> = numbers.map_while(|number| number.parse().ok()).collect();
        // User, nice and system, interrupts, and what the machine below took. A tick is 10 ms.
        let all_us = [0, 1, 2, 5, 6, 7].iter().filter_map(|at| ticks.get(*at)).sum::<f64>() * 1e4;
        Self { since: clock::now(), all_us, own_us: clock::cpu() as f64 / 1e3 }
    }

    /// How many cores others had since then, beside what the contender and its server used.
    pub(crate) fn others(&self, used_us: f64) -> f64 {
        let now = Self::now();
        let theirs = (now.all_us - self.all_us) - (now.own_us - self.own_us) - used_us;
        theirs.max(0.0) / ((now.since - self.since).max(1) as f64 / 1e3)
    }
}

fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
