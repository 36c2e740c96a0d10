//! [`Error`]: what was asked, what is wrong, what is allowed, and whether asking again may help.

use std::fmt;

use crate::invalid::Invalid;
use crate::lost::Lost;
use crate::mode::Mode;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. That somebody else has the lock is not among it: busy is a value.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong and will stay so: a name, a lease, a URL, an option.
    #[error(transparent)]
    Config(#[from] Invalid),
    /// The store cannot carry this; said before any I/O.
    #[error("{backend} does not support {what}")]
    Unsupported {
        /// The store.
        backend: &'static str,
        /// What it cannot do.
        what: String,
    },
    /// The store cannot answer now; asking again later may help.
    #[error("{backend} is unavailable while {doing}: {fault}: {detail}")]
    Unavailable {
        /// The store.
        backend: &'static str,
        /// What was being done.
        doing: String,
        /// The kind of trouble.
        fault: Fault,
        /// The store's or the system's own words, without secrets.
        detail: String,
    },
    /// The store answered and refuses; asking again will not help.
    #[error("{backend} refused {doing}: {fault}: {detail}")]
    Backend {
        /// The store.
        backend: &'static str,
        /// What was being done.
        doing: String,
        /// The kind of trouble.
        fault: Fault,
        /// The store's or the system's own words, without secrets.
        detail: String,
    },
    /// The hold in question was lost.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The locker was closed.
    #[error("the locker is closed")]
    Closed,
}

/// The kind of trouble that a store reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The store could not be reached, or the connection broke.
    Connection,
    /// No answer in time.
    Timeout,
    /// The server is loading its data set.
    Loading,
    /// The server or the file takes no writes (a replica, a read-only file).
    ReadOnly,
    /// The name's part of a cluster is on its way from one server to another.
    Moving,
    /// Fewer replicas have acknowledged than were asked for.
    Replicas,
    /// Too many nodes of a quorum have restarted of late.
    Quarantine,
    /// The server is one of a cluster, and the URL is not that of a cluster.
    Clustered,
    /// The server runs a long script, or the file is locked by another program.
    StoreBusy,
    /// The server is out of memory, or refuses writes because it cannot save them.
    OutOfMemory,
    /// The disk is full or failing.
    Disk,
    /// The key exists with another type.
    WrongType,
    /// The key exists and is not a lock of this layout.
    ForeignFormat,
    /// The user may not do this.
    Denied,
    /// User name or password are wrong, or missing.
    Auth,
    /// TLS could not be set up.
    Tls,
    /// The file is damaged, or is no database.
    Corrupt,
    /// Tokens are used up.
    TokenExhausted,
    /// An answer that this version does not understand.
    Protocol,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connection => "connection",
            Self::Timeout => "no answer in time",
            Self::Loading => "loading its data",
            Self::ReadOnly => "read-only",
            Self::Moving => "on its way to another server",
            Self::Replicas => "too few replicas",
            Self::Quarantine => "too many nodes restarted of late",
            Self::Clustered => "a cluster's server; a URL with redis+cluster:// reaches all of it",
            Self::StoreBusy => "busy with other work",
            Self::OutOfMemory => "out of memory",
            Self::Disk => "disk full or failing",
            Self::WrongType => "a key of another type",
            Self::ForeignFormat => "a key of another format",
            Self::Denied => "permission denied",
            Self::Auth => "wrong or missing credentials",
            Self::Tls => "TLS",
            Self::Corrupt => "damaged, or not a database",
            Self::TokenExhausted => "tokens are used up",
            Self::Protocol => "an answer that is not understood",
        })
    }
}

impl Error {
    /// A wrong request.
    pub(crate) fn config(asked: impl Into<String>, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Config(Invalid::new(asked, problem, allowed))
    }

    /// The store carries no such locks.
    #[must_use]
    pub fn unsupported(backend: &'static str, mode: Mode) -> Self {
        Self::Unsupported { backend, what: mode.to_string() }
    }

    /// The store cannot answer now.
    pub fn unavailable(backend: &'static str, doing: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self::Unavailable { backend, doing: doing.into(), fault, detail: detail.into() }
    }

    /// The store refuses.
    pub fn backend(backend: &'static str, doing: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self::Backend { backend, doing: doing.into(), fault, detail: detail.into() }
    }

    /// Whether asking again later may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The kind of trouble, where a store reported it.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Unavailable { fault, .. } | Self::Backend { fault, .. } => Some(*fault),
            _ => None,
        }
    }
}
