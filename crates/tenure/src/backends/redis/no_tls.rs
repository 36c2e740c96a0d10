//! Replaces [`tls`](super) in builds without the feature.

use std::io;

use tokio::net::TcpStream;

use crate::error::Result;

/// There is none.
#[derive(Debug, Clone)]
pub(super) enum Config {}

/// Nobody is trusted.
#[derive(Clone)]
pub(super) enum Trust {}

impl Trust {
    pub(super) fn config(&self) -> Result<Config> {
        match *self {}
    }
}

/// Is never called.
#[expect(clippy::unused_async, reason = "as the other")]
pub(super) async fn over(_stream: TcpStream, _host: &str, config: &Config) -> io::Result<TcpStream> {
    match *config {}
}
