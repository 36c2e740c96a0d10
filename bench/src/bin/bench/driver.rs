//! One driver that runs, and what is said to it and by it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tenure_bench::outcome::{Outcome, Unsupported};

#[derive(Debug)]
pub(crate) struct Driver {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Driver {
    pub(crate) fn start(mut command: Command, log: &File) -> Result<Self, String> {
        let log = log.try_clone().map_err(|e| e.to_string())?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|e| format!("does not start: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("has no pipes".to_owned());
        };
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<(), String> {
        writeln!(self.input, "{order}").and_then(|()| self.input.flush()).map_err(|e| format!("is gone: {e}"))
    }

    /// Waits for this word. What the driver says instead is an error.
    pub(crate) fn expect(&self, word: &str, limit: Duration) -> Result<(), String> {
        let line = self.line(limit)?;
        if line == word {
            return Ok(());
        }
        Err(match serde_json::from_str::<Unsupported>(&line) {
            Ok(Unsupported { unsupported }) => format!("not supported: {unsupported}"),
            Err(_) => match serde_json::from_str::<Outcome>(&line) {
                Ok(Outcome { error: Some(error), .. }) => error,
                _ => format!("says {line:.200} instead of {word}"),
            },
        })
    }

    pub(crate) fn outcome(&self, limit: Duration) -> Result<Outcome, String> {
        let line = self.line(limit)?;
        let outcome: Outcome = serde_json::from_str(&line).map_err(|e| format!("says {line:.200}: {e}"))?;
        match outcome.error {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    fn line(&self, limit: Duration) -> Result<String, String> {
        self.lines.recv_timeout(limit).map_err(|e| format!("says nothing: {e}"))
    }

    pub(crate) fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _already_waited_for = self.child.wait();
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}
