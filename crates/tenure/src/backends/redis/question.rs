//! One question to one server, over the connection that its link has.

use std::io::Write as _;
use std::sync::Arc;

use redis::{Arg, Cmd, ErrorKind, RedisError, RedisResult, RedisWrite as _, ServerErrorKind, Value, cmd, pipe};

use super::calls::{Flight, given_up};
use super::connection::Connection;
use super::fault::{Failure, is_broken};
use super::keys::Prefixed;
use super::link::{Link, Live};
use super::scripts::Source;
use super::shared::Wake;

/// What is asked of a server.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    /// By its hash.
    Script {
        source: &'a Source,
        by_hash: &'a Cmd,
        /// The server shall tell of the next change of any of these, from before the script on.
        heeds: &'a [&'a str],
    },
    Command(&'a Cmd),
}

/// Whether a server will tell of the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    Yes,
    No,
    /// This user may not ask for it.
    Refused,
}

/// What a server said, and over which connection.
pub(super) struct Answer {
    pub(super) value: Value,
    pub(super) live: Arc<Live>,
    telling: Telling,
}

impl Answer {
    /// Whether the server will tell of the next change of what the question heeds, whoever makes it.
    pub(super) fn will_tell(&self) -> bool {
        self.telling == Telling::Yes
    }

    /// How the one who asked is woken if it waits.
    pub(super) fn wake(&self) -> Wake {
        self.live.wake
    }

    /// The connection over which it was said.
    pub(super) fn session(&self) -> u64 {
        self.live.id
    }
}

impl Link {
    /// Asks once. With `asking`, also for a slot that has yet to arrive at this server.
    pub(super) async fn ask(&self, doing: &str, question: Question<'_>, asking: bool) -> Result<Answer, Failure> {
        // All in one place, and nothing handed on: what most calls wait in is as small as can be.
        let live = self.live().clone();
        let live = match live {
            Some(live) => live,
            None => Box::pin(self.until_over(doing, self.connected())).await?,
        };
        let flight = Flight::new(self, live.id);
        let answer = question.put(&live.connection, asking).await;
        flight.land();
        // Where all calls were ended, no answer is believed: it may be another's.
        if live.over.is_set() {
            return Err(given_up(doing));
        }
        let (value, telling) = answer.map_err(|e| self.broken(doing, live.id, &e))?;
        if telling == Telling::Refused {
            // The next connection finds out how else to be woken.
            self.discard(live.id);
        }
        if let Value::Push { .. } = value {
            self.abandon(&live.over);
            return Err(given_up(doing));
        }
        Ok(Answer { value, live, telling })
    }

    /// What a call over a connection has failed of. One that is broken is used no more.
    pub(super) fn broken(&self, doing: &str, id: u64, error: &RedisError) -> Failure {
        if is_broken(error) {
            self.discard(id);
        }
        Failure::of(doing, error)
    }
}

impl Question<'_> {
    /// Whether only a server that has all of a slot can answer.
    pub(super) fn looks_further(self) -> bool {
        matches!(self, Self::Script { source, .. } if source.looks_further)
    }

    /// A script goes by its hash, or by its text if the server does not know it.
    pub(super) async fn put(self, connection: &Connection, asking: bool) -> RedisResult<(Value, Telling)> {
        let (source, by_hash, heeds) = match self {
            Self::Command(command) => return Ok((send(connection, command, asking).await?, Telling::No)),
            Self::Script { source, by_hash, heeds } => (source, by_hash, heeds),
        };
        let (answer, telling) = if heeds.is_empty() || asking {
            // What is asked for while a slot is on its way has to stand directly before, as the other would have to.
            (send(connection, by_hash, asking).await, Telling::No)
        } else {
            Box::pin(send_heeding(connection, by_hash, heeds)).await?
        };
        let answer = match answer {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Box::pin(send(connection, &by_text(source, by_hash), asking)).await
            }
            answer => answer,
        };
        Ok((answer?, telling))
    }
}

/// A script with its keys and arguments, by its hash.
pub(super) fn by_hash(source: &Source, keys: &[&str], args: &[&str]) -> Cmd {
    let mut call = call_of(source, keys.len(), keys.iter().chain(args).map(|part| part.len()).sum(), args.len());
    call.arg(keys).arg(args);
    call
}

/// A script by its hash, with room for its keys and arguments, which follow.
pub(super) fn call_of(source: &Source, keys: usize, bytes: usize, args: usize) -> Cmd {
    let mut call = Cmd::with_capacity(3 + keys + args, bytes + source.hash.len() + 16);
    call.arg("EVALSHA").arg(&source.hash).arg(keys);
    call
}

/// One more key or channel, written where it is needed and nowhere before.
pub(super) fn write_key(call: &mut Cmd, key: Prefixed<'_>) {
    let mut arg = call.writer_for_next_arg();
    // Memory refuses nothing.
    key.parts().iter().for_each(|part| drop(arg.write_all(part.as_bytes())));
}

/// The same by its text.
fn by_text(source: &Source, by_hash: &Cmd) -> Cmd {
    let mut call = cmd("EVAL");
    call.arg(&source.text);
    for arg in by_hash.args_iter().skip(2) {
        if let Arg::Simple(arg) = arg {
            call.arg(arg);
        }
    }
    call
}

async fn send(connection: &Connection, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.send(command).await?.extract_error();
    }
    Box::pin(send_asking(connection, command)).await
}

async fn send_asking(connection: &Connection, command: &Cmd) -> RedisResult<Value> {
    // It holds for the next command of the connection, so nothing may come in between.
    let mut both = pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.send_all(&both, 1, 1).await?;
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}

/// Has the server remember keys for us by reading them, and asks in the same breath: whatever changes after the answer is told.
/// Not by the script itself: what that reads is more than matters, and which of it is remembered differs between servers.
async fn send_heeding(connection: &Connection, command: &Cmd, heeds: &[&str]) -> RedisResult<(RedisResult<Value>, Telling)> {
    let mut all = pipe();
    all.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(heeds).add_command(command.clone());
    let mut answers = connection.send_all(&all, 0, 3).await?.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let telling = match (next(), next()) {
        (Err(_), _) => Telling::Refused,
        (_, Err(_)) => Telling::No,
        (Ok(_), Ok(_)) => Telling::Yes,
    };
    Ok((next(), telling))
}
