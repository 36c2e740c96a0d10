//! One question over one connection.

use redis::aio::ConnectionLike;
use redis::{Arg, Cmd, ErrorKind, RedisResult, ServerErrorKind, Value, cmd, pipe};

use super::connection::Connection;
use super::scripts::Source;

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

impl Question<'_> {
    /// Whether only a server that has all of a slot can answer.
    pub(super) fn looks_further(self) -> bool {
        matches!(self, Self::Script { source, .. } if source.looks_further)
    }

    /// A script goes by its hash, or by its text if the server does not know it.
    pub(super) async fn put(self, connection: &mut Connection, asking: bool) -> RedisResult<(Value, Telling)> {
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
    let mut call = cmd("EVALSHA");
    call.arg(&source.hash).arg(keys.len()).arg(keys).arg(args);
    call
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

async fn send(connection: &mut Connection, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return connection.req_packed_command(command).await?.extract_error();
    }
    Box::pin(send_asking(connection, command)).await
}

async fn send_asking(connection: &mut Connection, command: &Cmd) -> RedisResult<Value> {
    // It holds for the next command of the connection, so nothing may come in between.
    let mut both = pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.req_packed_commands(&both, 1, 1).await?;
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}

/// Has the server remember keys for us by reading them, and asks in the same breath: whatever changes after the answer is told.
/// Not by the script itself: what that reads is more than matters, and which of it is remembered differs between servers.
async fn send_heeding(connection: &mut Connection, command: &Cmd, heeds: &[&str]) -> RedisResult<(RedisResult<Value>, Telling)> {
    let mut all = pipe();
    all.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(heeds).add_command(command.clone());
    let mut answers = connection.req_packed_commands(&all, 0, 3).await?.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let telling = match (next(), next()) {
        (Err(_), _) => Telling::Refused,
        (_, Err(_)) => Telling::No,
        (Ok(_), Ok(_)) => Telling::Yes,
    };
    Ok((next(), telling))
}
