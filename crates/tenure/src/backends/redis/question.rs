//! One question over one connection.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, Value, cmd, pipe};

use super::scripts::Source;

/// What is asked of a server.
#[derive(Clone, Copy)]
pub(super) enum Question<'a> {
    Script { source: &'a Source, keys: &'a [&'a str], args: &'a [&'a str] },
    Command(&'a Cmd),
}

impl Question<'_> {
    /// A script goes by its hash, or by its text if the server does not know it.
    pub(super) async fn put(self, connection: &mut MultiplexedConnection, asking: bool) -> RedisResult<Value> {
        let (source, keys, args) = match self {
            Self::Command(command) => return send(connection, command, asking).await,
            Self::Script { source, keys, args } => (source, keys, args),
        };
        let call = |verb: &str, body: &str| {
            let mut call = cmd(verb);
            call.arg(body).arg(keys.len()).arg(keys).arg(args);
            call
        };
        match send(connection, &call("EVALSHA", &source.hash), asking).await {
            Err(e) if e.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                send(connection, &call("EVAL", &source.text), asking).await
            }
            answer => answer,
        }
    }
}

async fn send(connection: &mut MultiplexedConnection, command: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return command.query_async(connection).await;
    }
    // It holds for the next command of the connection, so nothing may come in between.
    let mut both = pipe();
    both.cmd("ASKING").add_command(command.clone());
    let answers = connection.req_packed_commands(&both, 1, 1).await?;
    answers.into_iter().next().unwrap_or(Value::Nil).extract_error()
}
