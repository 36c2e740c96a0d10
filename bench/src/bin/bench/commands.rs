//! A program under a lock, from the start of its process to the end: `tenure run`, flock(1), and `redis-cli` by hand.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::results::{CaseResult, Lap};
use crate::run::{Settings, Stage};

/// What people write who have only the shell.
const BY_HAND: &str = r#"redis-cli -p "$1" set lock "$$" nx px 30000 >/dev/null && true
redis-cli -p "$1" eval 'return redis.call("get",KEYS[1])==ARGV[1] and redis.call("del",KEYS[1])' 1 lock "$$" >/dev/null"#;

pub(crate) fn run(settings: &Settings, stage: &Stage, result: &mut CaseResult) {
    for round in 0..settings.rounds {
        for turn in 0..result.rows.len() {
            let at = if round % 2 == 0 { turn } else { result.rows.len() - 1 - turn };
            let row = &mut result.rows[at];
            match command(settings, stage, &row.contender).and_then(|command| repeat(settings, command)) {
                Ok(lap) => row.laps.push(lap),
                Err(trouble) => row.trouble = Some(trouble),
            }
        }
    }
}

fn command(settings: &Settings, stage: &Stage, contender: &str) -> Result<Command, String> {
    let mut command;
    match contender {
        "tenure run" | "tenure run (sqlite)" => {
            let program = settings.programs.rust.join("tenure");
            if !program.exists() {
                return Err("not built here".to_owned());
            }
            command = Command::new(program);
            let file = format!("sqlite:{}", stage.folder.path().join("locks").display());
            let url = if contender == "tenure run" { &stage.urls[0] } else { &file };
            command.args(["--url", url, "run", "bench", "--", "true"]);
        }
        "flock(1)" => {
            command = Command::new("flock");
            command.arg(stage.folder.path().join("flock")).arg("true");
        }
        _ => {
            command = Command::new("sh");
            command.args(["-c", BY_HAND, "sh", &stage.servers[0].port.to_string()]);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Ok(command)
}

fn repeat(settings: &Settings, mut command: Command) -> Result<Lap, String> {
    let (start, limit) = (Instant::now(), Duration::from_secs_f64(settings.seconds));
    let mut cycles = 0_u32;
    while start.elapsed() < limit {
        let status = command.status().map_err(|e| format!("does not start: {e}"))?;
        if !status.success() {
            return Err(format!("ends with {status}"));
        }
        cycles += 1;
    }
    Ok(Lap { rate: f64::from(cycles) / start.elapsed().as_secs_f64(), cycles: cycles.into(), ..Lap::default() })
}
