//! How the servers of one deployment are dialled: all but the address.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::{AsyncConnectionConfig, ProtocolVersion, RedisConnectionInfo, RedisResult};
use rustls::ClientConfig;
use tokio::net::{TcpStream, UnixStream, lookup_host};

use super::connection::Connection;
use super::slots::Address;
use super::tls;
use super::url::{Url, refuse};
use crate::error::Result;
use crate::store::Options;

/// Who we are to a server, and how it is reached. Clones share nothing secret but memory.
#[derive(Clone)]
pub(super) struct Dial {
    settings: RedisConnectionInfo,
    tls: Option<Arc<ClientConfig>>,
}

impl fmt::Debug for Dial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dial").field("tls", &self.tls.is_some()).finish_non_exhaustive()
    }
}

impl Dial {
    /// Reads the login of a URL, and the TLS options where the scheme begins with `rediss`.
    pub(super) fn new(scheme: &str, url: &Url, options: &mut Options) -> Result<Self> {
        let settings = login(RedisConnectionInfo::default(), url.user.as_deref(), url.pass.as_deref());
        let tls = scheme.starts_with("rediss").then(|| tls::configure(options)).transpose()?;
        Ok(Self { settings, tls })
    }

    /// The same for another login.
    pub(super) fn login(&self, user: Option<&str>, pass: Option<&str>) -> Self {
        Self { settings: login(RedisConnectionInfo::default(), user, pass), tls: self.tls.clone() }
    }

    /// The same for another database.
    pub(super) fn db(mut self, scheme: &str, db: Option<&str>) -> Result<Self> {
        // Not shown: with a slash in a password, the path is a part of that.
        let number = db.map(|db| db.parse().map_err(|_| refuse(scheme, "has a database that is no number"))).transpose()?;
        if let Some(number) = number {
            self.settings = self.settings.set_db(number);
        }
        Ok(self)
    }

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
        let Dial { settings, tls } = &self.dial;
        match (&self.at, tls) {
            (At::Unix(path), _) => Connection::greet(UnixStream::connect(path).await?, settings, config).await,
            (At::Tcp(address), None) => Connection::greet(tcp(address).await?, settings, config).await,
            (At::Tcp(address), Some(tls)) => {
                let stream = tls::over(tcp(address).await?, &address.0, tls).await?;
                Connection::greet(stream, settings, config).await
            }
        }
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

fn login(mut settings: RedisConnectionInfo, user: Option<&str>, pass: Option<&str>) -> RedisConnectionInfo {
    settings = settings.set_protocol(ProtocolVersion::RESP3).set_lib_name("tenure", env!("CARGO_PKG_VERSION"));
    if let Some(user) = user {
        settings = settings.set_username(user);
    }
    if let Some(pass) = pass {
        settings = settings.set_password(pass);
    }
    settings
}
