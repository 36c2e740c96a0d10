//! What the numbers were measured on.

use std::process::Command;

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

fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().to_owned()
}
