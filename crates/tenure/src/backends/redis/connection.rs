//! One connection: what was dialled, with redis-rs above it and [`Frames`] below.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisFuture, RedisResult, Value, cmd, pipe,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::driver::Driver;
use super::fault::{Failure, is_broken, is_unknown_command};
use super::frames::{Breach, Frames};
use super::reply::{field, text};
use super::shared::Wake;

/// A connection that many calls share. It ends with its last clone.
#[derive(Clone)]
pub(super) struct Connection(Arc<Inner>);

struct Inner {
    multiplexed: MultiplexedConnection,
    /// Why it was ended, if the server has sent too much: all calls under way are told.
    breach: Arc<OnceLock<Breach>>,
    /// The task that reads and writes. Without an end it would wait for the answers to all calls under way, of a server that hangs too.
    driver: Driver,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Greets the server at the other end of a stream.
    pub(super) async fn greet<S>(stream: S, login: &RedisConnectionInfo, config: AsyncConnectionConfig) -> RedisResult<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let breach = Arc::new(OnceLock::new());
        let stream = Bounded { stream, frames: Frames::default(), breach: Arc::clone(&breach) };
        let (multiplexed, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await.map_err(|e| discreet(explained(&breach, e)))?;
        let driver = Driver::spawn(driver);
        Ok(Self(Arc::new(Inner { multiplexed, breach, driver })))
    }

    /// Aborted, it ends the connection and all calls under way over it.
    pub(super) fn driver(&self) -> Driver {
        self.0.driver.clone()
    }

    /// One command and its answer.
    pub(super) async fn send(&self, command: &Cmd) -> RedisResult<Value> {
        let answer = self.0.multiplexed.clone().send_packed_command(command).await;
        answer.map_err(|e| explained(&self.0.breach, e))
    }

    /// Several in one breath: the answers to `count` of them, from the one at `offset` on.
    pub(super) async fn send_all(&self, commands: &Pipeline, offset: usize, count: usize) -> RedisResult<Vec<Value>> {
        let answers = self.0.multiplexed.clone().send_packed_commands(commands, offset, count).await;
        answers.map_err(|e| explained(&self.0.breach, e))
    }

    /// Turns on what wakes waiters, and says what that is.
    pub(super) async fn start_pushes(&self, wanted: Option<Wake>) -> Result<Wake, Failure> {
        if wanted == Some(Wake::PubSub) {
            return Ok(Wake::PubSub);
        }
        // OPTIN: the server tracks only what it is told to. Not NOLOOP: a write of our own would then end the tracking without a push.
        // CACHING tests for the right to it; it is about the next command, which reads nothing.
        let mut both = pipe();
        both.cmd("CLIENT").arg("TRACKING").arg("ON").arg("OPTIN").cmd("CLIENT").arg("CACHING").arg("YES");
        let answers = self.send_all(&both, 0, 2).await;
        match answers.and_then(|answers| answers.into_iter().try_for_each(|answer| answer.extract_error().map(drop))) {
            Ok(()) => Ok(Wake::Tracking),
            Err(e) if is_broken(&e) || wanted.is_some() => Err(Failure::of("turning on CLIENT TRACKING and CACHING", &e)),
            Err(e) => {
                debug!(error = %e, "no CLIENT TRACKING and CACHING here; waiters subscribe");
                Ok(Wake::PubSub)
            }
        }
    }

    /// Whether the server calls itself a master, which any user may ask. One that does not tell (a proxy) is taken for a master.
    pub(super) async fn is_master(&self) -> Result<bool, Failure> {
        match self.send(&cmd("HELLO")).await.and_then(Value::extract_error) {
            Ok(hello) => Ok(field(&hello, "role").and_then(text).is_none_or(|role| role == "master")),
            Err(e) if is_broken(&e) => Err(Failure::of("connecting", &e)),
            Err(_) => Ok(true),
        }
    }

    pub(super) async fn subscribe(&self, channel: &str) -> RedisResult<()> {
        self.0.multiplexed.clone().subscribe(channel).await.map_err(|e| explained(&self.0.breach, e))
    }

    pub(super) async fn unsubscribe(&self, channel: &str) -> RedisResult<()> {
        self.0.multiplexed.clone().unsubscribe(channel).await.map_err(|e| explained(&self.0.breach, e))
    }
}

/// redis-rs tells the first call under way why the connection has ended, and the others only that it has.
fn explained(breach: &OnceLock<Breach>, error: RedisError) -> RedisError {
    breach.get().map_or(error, |breach| io::Error::new(io::ErrorKind::InvalidData, *breach).into())
}

/// A server that does not know HELLO repeats what came with it, which is the password. redis-rs knows that answer only as Redis 6 words it.
fn discreet(error: RedisError) -> RedisError {
    let repeats = is_unknown_command(&error) && error.detail().is_some_and(|detail| detail.contains("HELLO"));
    let why = "the server does not know HELLO, so it cannot be spoken to by RESP3";
    if repeats { (ErrorKind::RESP3NotSupported, why).into() } else { error }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        Box::pin(self.send(cmd))
    }

    fn req_packed_commands<'a>(&'a mut self, pipeline: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        Box::pin(self.send_all(pipeline, offset, count))
    }

    fn get_db(&self) -> i64 {
        self.0.multiplexed.get_db()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("breach", &self.0.breach).finish_non_exhaustive()
    }
}

/// A stream that ends with an error where a reply is larger than allowed.
struct Bounded<S> {
    stream: S,
    frames: Frames,
    breach: Arc<OnceLock<Breach>>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Bounded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        Poll::Ready(self.frames.pass(&buf.filled()[before..]).map_err(|breach| {
            let breach = *self.breach.get_or_init(|| breach);
            io::Error::new(io::ErrorKind::InvalidData, breach)
        }))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bounded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
