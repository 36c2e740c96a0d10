//! What is asked of a server: a command, or a script with its keys and arguments.

use std::io::Write as _;

use redis::{Arg, Cmd, ErrorKind, RedisResult, RedisWrite as _, ServerErrorKind, Value, cmd, pipe};

use super::connection::Connection;
use super::keys::Prefixed;
use super::scripts::Source;

/// A script with its keys and arguments, called by its hash.
pub(super) struct ScriptCall {
    source: &'static Source,
    pub(super) command: Cmd,
}

impl ScriptCall {
    pub(super) fn new(source: &'static Source, keys: &[impl AsRef<str>], args: &[impl AsRef<str>]) -> Self {
        let parts = || keys.iter().map(AsRef::as_ref).chain(args.iter().map(AsRef::as_ref));
        let bytes = parts().map(str::len).sum();
        let mut call = Self::with_room(source, keys.len(), bytes, args.len());
        for part in parts() {
            call.command.arg(part);
        }
        call
    }

    /// With room for so many keys, bytes and arguments, which the caller writes.
    pub(super) fn with_room(source: &'static Source, keys: usize, bytes: usize, args: usize) -> Self {
        let mut command = Cmd::with_capacity(3 + keys + args, bytes + source.hash.len() + 16);
        command.arg("EVALSHA").arg(&source.hash).arg(keys);
        Self { source, command }
    }

    /// Adds a key or channel without a string of its own.
    pub(super) fn write_key(&mut self, key: Prefixed<'_>) {
        let mut arg = self.command.writer_for_next_arg();
        // Memory refuses nothing.
        key.parts().iter().for_each(|part| drop(arg.write_all(part.as_bytes())));
    }
}

/// One question to one server.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// What the caller does, for its error.
    pub(super) doing: &'a str,
    command: &'a Cmd,
    /// The script that the command calls.
    script: Option<&'static Source>,
    /// The server shall push the next change of any of these keys, counted from before the script.
    tracked: &'a [&'a str],
    /// Whether it may go over a connection of the caller's own runtime.
    near: bool,
}

/// Whether the server will push the next change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tracking {
    Yes,
    No,
    /// This user may not ask for it.
    Refused,
}

impl<'a> Question<'a> {
    pub(super) fn command(doing: &'a str, command: &'a Cmd) -> Self {
        Self { doing, command, script: None, tracked: &[], near: false }
    }

    pub(super) fn script(doing: &'a str, call: &'a ScriptCall) -> Self {
        Self { doing, command: &call.command, script: Some(call.source), tracked: &[], near: false }
    }

    pub(super) fn tracking(self, tracked: &'a [&'a str]) -> Self {
        Self { tracked, ..self }
    }

    /// It may go over a connection of the caller's own runtime: no answer of the link's own connection is to come before it or after it.
    pub(super) fn near(self, near: bool) -> Self {
        Self { near, ..self }
    }

    pub(super) fn may_be_near(self) -> bool {
        self.near && self.tracked.is_empty()
    }

    /// Whether only a server that has all of a slot can answer.
    pub(super) fn looks_further(self) -> bool {
        self.script.is_some_and(|source| source.looks_further)
    }

    /// Sends it. A script that the server does not know goes again as text.
    pub(super) async fn send(self, connection: &Connection, asking: bool) -> RedisResult<(Value, Tracking)> {
        let (answer, tracking) = if self.tracked.is_empty() || asking {
            // `ASKING` and `CLIENT CACHING` must both stand directly before the command.
            (send(connection, self.command, asking).await, Tracking::No)
        } else {
            Box::pin(send_tracking(connection, self.command, self.tracked)).await?
        };
        let answer = match (answer, self.script) {
            (Err(e), Some(source)) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                Box::pin(send(connection, &by_text(source, self.command), asking)).await
            }
            (answer, _) => answer,
        };
        Ok((answer?, tracking))
    }
}

/// The call of a script with its text in the place of its hash.
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

/// Reads keys so that the server tracks them, and asks in the same pipeline: each change after the answer is pushed. A script's own
/// reads do not serve: it reads more than matters, and servers differ in what they track of that.
async fn send_tracking(connection: &Connection, command: &Cmd, keys: &[&str]) -> RedisResult<(RedisResult<Value>, Tracking)> {
    let mut all = pipe();
    all.cmd("CLIENT").arg("CACHING").arg("YES").cmd("EXISTS").arg(keys).add_command(command.clone());
    let mut answers = connection.send_all(&all, 0, 3).await?.into_iter().map(Value::extract_error);
    let mut next = || answers.next().unwrap_or(Ok(Value::Nil));
    let tracking = match (next(), next()) {
        (Err(_), _) => Tracking::Refused,
        (_, Err(_)) => Tracking::No,
        (Ok(_), Ok(_)) => Tracking::Yes,
    };
    Ok((next(), tracking))
}
