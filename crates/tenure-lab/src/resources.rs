//! Free ports and temporary directories for servers.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;

/// The ports of servers. Outgoing connections get ports from 32768 on; the bus of a cluster is 10000 above its server.
pub const PORTS: Range<u16> = 10_000..20_000;

/// A free loopback port. No port is returned twice, so that a killed server finds its port free.
pub fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    loop {
        let next = NEXT.fetch_add(1, Ordering::Relaxed) % (PORTS.len() as u64);
        let port = PORTS.start + u16::try_from(next).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A directory in memory where there is such a file system: servers that sync to a disk do not answer meanwhile.
///
/// # Errors
/// No directory could be created, in memory or elsewhere.
pub fn temp_dir(prefix: &str) -> io::Result<TempDir> {
    let named = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix);
        builder
    };
    named().tempdir_in("/dev/shm").or_else(|_| named().tempdir())
}
