//! Counts the requests that clients send to a server, as the server sees them.
//!
//! The server's own counters also count what scripts do inside of it. `MONITOR` tells the two apart, and tells the lab's
//! own requests too: the lab alone comes through the unix socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::password;
use crate::resources::PORTS;

/// What belongs to connecting, not to locking. Clients differ in it for reasons of their own.
const GREETINGS: [&str; 4] = ["hello", "auth", "select", "ping"];

const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default)]
pub(crate) struct RequestCounter {
    heard: Arc<(Mutex<Heard>, Condvar)>,
}

#[derive(Debug, Default)]
struct Heard {
    requests: u64,
    /// The last of the lab's own words that came by.
    word: Option<String>,
    deaf: bool,
}

impl RequestCounter {
    /// Listens to a server from now on, until it ends.
    pub(crate) fn listen(&self, socket: &Path) -> Result<()> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(format!("AUTH {}\r\nMONITOR\r\n", password::made_up()?).as_bytes())?;
        let mut lines = BufReader::new(stream).lines();
        // From the server's second `+OK` on it hears everything.
        for _ in 0..2 {
            let said = lines.next().transpose()?;
            said.filter(|line| line == "+OK").ok_or_else(|| LabError::new("the server does not let the lab listen"))?;
        }
        self.lock().deaf = false;
        let counter = self.clone();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                counter.hear(&line);
            }
            counter.lock().deaf = true;
            counter.heard.1.notify_all();
        });
        Ok(())
    }

    fn hear(&self, line: &str) {
        match Line::parse(line) {
            Some(Line::Request) => self.lock().requests += 1,
            Some(Line::Word(word)) => {
                self.lock().word = Some(word.to_owned());
                self.heard.1.notify_all();
            }
            None => {}
        }
    }

    /// Waits until a word of the lab has come by: then all that was sent before it has been counted.
    pub(crate) fn until(&self, word: &str) -> Result<()> {
        let give_up = Instant::now() + LIMIT;
        let mut heard = self.lock();
        while heard.word.as_deref() != Some(word) && !heard.deaf {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(LabError::new("the server does not say what it hears"));
            }
            heard = self.heard.1.wait_timeout(heard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// How many requests there were so far.
    pub(crate) fn requests(&self) -> u64 {
        self.lock().requests
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a line of `MONITOR` is about: `+1700000000.123456 [0 127.0.0.1:40000] "GET" "key"`.
#[derive(Debug, PartialEq, Eq)]
enum Line<'a> {
    /// A client sent something.
    Request,
    /// The lab said something to itself.
    Word(&'a str),
}

impl<'a> Line<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (_, line) = line.split_once('[')?;
        let (from, command) = line.split_once("] ")?;
        let (_, from) = from.split_once(' ')?;
        let mut words = command.split('"').filter(|word| !word.trim().is_empty());
        let verb = words.next()?.to_lowercase();
        if from.starts_with("unix:") {
            return (verb == "echo").then(|| words.next()).flatten().map(Line::Word);
        }
        let argument = words.next().unwrap_or_default().to_lowercase();
        let greets = GREETINGS.contains(&&*verb) || verb == "client" && matches!(&*argument, "setinfo" | "setname");
        // What a script does inside of the server is no request, nor is what a master passes on to its replica.
        let port = from.rsplit(':').next().and_then(|port| port.parse().ok());
        let inside = from == "lua" || port.is_some_and(|port: u16| PORTS.contains(&port));
        (!inside && !greets).then_some(Line::Request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_greetings_and_the_lab_itself_are_not_counted() {
        for (line, told) in [
            (r#"+1.2 [0 127.0.0.1:40000] "SET" "a b" "1""#, Some(Line::Request)),
            (r#"+1.2 [0 [::1]:40000] "EVALSHA" "6f" "0""#, Some(Line::Request)),
            (r#"+1.2 [0 lua] "get" "a""#, None),
            (r#"+1.2 [0 127.0.0.1:10001] "SET" "a" "1""#, None),
            (r#"+1.2 [0 127.0.0.1:40000] "CLIENT" "SETINFO" "LIB-NAME" "x""#, None),
            (r#"+1.2 [0 127.0.0.1:40000] "CLIENT" "TRACKING" "on""#, Some(Line::Request)),
            (r#"+1.2 [0 unix:/tmp/socket] "ECHO" "w 1""#, Some(Line::Word("w 1"))),
            (r#"+1.2 [0 unix:/tmp/socket] "GET" "a""#, None),
            ("+OK", None),
        ] {
            assert_eq!(Line::parse(line), told, "{line}");
        }
    }
}
