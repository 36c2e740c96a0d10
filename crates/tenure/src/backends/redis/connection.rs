//! One connection: what was dialled, with redis-rs above it and [`Frames`] below.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisFuture, RedisResult, Value};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::AbortHandle;

use super::fault::is_unknown_command;
use super::frames::{Breach, Frames};

/// A connection that many calls share. It ends with its last clone.
#[derive(Clone)]
pub(super) struct Connection {
    inner: MultiplexedConnection,
    /// Why it was ended, if the server has sent too much: whoever waits for an answer is told that.
    breach: Arc<OnceLock<Breach>>,
    _driver: Arc<Driver>,
}

/// The task that reads and writes. Without an end it would wait for the answers to all calls under way, of a server that hangs too.
struct Driver(AbortHandle);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
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
        let (inner, driver) =
            MultiplexedConnection::new_with_config(login, stream, config).await.map_err(|e| discreet(explained(&breach, e)))?;
        let driver = Driver(tokio::spawn(driver).abort_handle());
        Ok(Self { inner, breach, _driver: Arc::new(driver) })
    }

    pub(super) async fn subscribe(&mut self, channel: &str) -> RedisResult<()> {
        self.inner.subscribe(channel).await.map_err(|e| explained(&self.breach, e))
    }

    pub(super) async fn unsubscribe(&mut self, channel: &str) -> RedisResult<()> {
        self.inner.unsubscribe(channel).await.map_err(|e| explained(&self.breach, e))
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
        let (inner, breach) = (&mut self.inner, &self.breach);
        Box::pin(async move { inner.req_packed_command(cmd).await.map_err(|e| explained(breach, e)) })
    }

    fn req_packed_commands<'a>(&'a mut self, pipeline: &'a Pipeline, offset: usize, count: usize) -> RedisFuture<'a, Vec<Value>> {
        let (inner, breach) = (&mut self.inner, &self.breach);
        Box::pin(async move { inner.req_packed_commands(pipeline, offset, count).await.map_err(|e| explained(breach, e)) })
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("breach", &self.breach).finish_non_exhaustive()
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
