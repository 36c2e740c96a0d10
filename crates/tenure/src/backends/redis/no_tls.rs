//! In the place of [`tls`](super) in builds without the feature.

use std::convert::Infallible;
use std::io;

use tokio::net::TcpStream;

/// There is none.
pub(super) type Config = Infallible;

/// Is never called.
#[expect(clippy::unused_async, reason = "as the other")]
pub(super) async fn over(_stream: TcpStream, _host: &str, config: &Config) -> io::Result<TcpStream> {
    match *config {}
}
