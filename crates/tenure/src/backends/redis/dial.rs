//! How the servers of one deployment are dialled: everything except the address.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::{AsyncConnectionConfig, RedisResult};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::connection::Connection;
use super::login::Login;
use super::slots::Address;
use super::tls;

/// Who we are to a server, and how it is reached. Clones share nothing secret but memory.
#[derive(Clone)]
pub(super) struct Dial {
    pub(super) login: Login,
    pub(super) database: u32,
    pub(super) tls: Option<tls::Config>,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Dial {
    /// A server at an address. Does not connect yet.
    pub(super) fn server(&self, address: &Address) -> Server {
        Server { at: At::Tcp(address.clone()), dial: self.clone() }
    }

    /// A server behind a unix socket.
    pub(super) fn socket(self, path: PathBuf) -> Server {
        Server { at: At::Unix(path), dial: self }
    }
}

/// A server that can be connected to.
#[derive(Debug, Clone)]
pub(super) struct Server {
    at: At,
    dial: Dial,
}

#[derive(Debug, Clone)]
enum At {
    Tcp(Address),
    Unix(PathBuf),
}

impl Server {
    /// Connects, and logs in.
    pub(super) async fn connect(&self, config: AsyncConnectionConfig, within: Duration) -> RedisResult<Connection> {
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, format!("not connected within {within:?}")).into());
        tokio::time::timeout(within, self.connect_now(config)).await.unwrap_or_else(late)
    }

    async fn connect_now(&self, config: AsyncConnectionConfig) -> RedisResult<Connection> {
        match (&self.at, &self.dial.tls) {
            (At::Unix(path), _) => self.greet(UnixStream::connect(path).await?, config).await,
            (At::Tcp(address), None) => self.greet(tcp(address).await?, config).await,
            (At::Tcp(address), Some(tls)) => self.greet(tls::over(tcp(address).await?, &address.0, tls).await?, config).await,
        }
    }

    /// Logs in. Who that is, is asked only now: a server that is away costs the program no question.
    async fn greet<S>(&self, stream: S, config: AsyncConnectionConfig) -> RedisResult<Connection>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Dial { login, database, .. } = &self.dial;
        let settings = login.settings(*database).await?;
        Connection::greet(stream, &settings, config).await.map_err(|e| login.refused(e))
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            At::Tcp((host, port)) => write!(f, "{host}:{port}"),
            At::Unix(path) => path.display().fmt(f),
        }
    }
}

/// The first of a name's addresses that answers.
async fn tcp((host, port): &Address) -> io::Result<TcpStream> {
    let all: Vec<_> = lookup_host((&**host, *port)).await?.map(|at| Box::pin(TcpStream::connect(at))).collect();
    if all.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address")));
    }
    let (stream, _) = select_ok(all).await?;
    // A lock is one small packet each way: nothing to gain by collecting them.
    stream.set_nodelay(true)?;
    Ok(stream)
}
