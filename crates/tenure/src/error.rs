//! [`Error`]: what was asked, what is wrong, what is allowed, and whether asking again may help.

mod too_few;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

pub use self::too_few::{NodeTrouble, TooFewNodes};
use crate::invalid::Invalid;
use crate::lost::Lost;
use crate::mode::Mode;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a driver or the system said, for [`source`](StdError::source). Shared, so that an [`Error`] can be cloned.
pub type Source = Arc<dyn StdError + Send + Sync>;

/// Everything that can go wrong. A busy lock is no error: busy is a value.
///
/// Its text says all that is known, also what its [`source`](StdError::source) says: that is for programs that look at a driver's error.
///
/// ```
/// use tenure::{Error, Fault};
///
/// fn status(error: &Error) -> u16 {
///     match error {
///         Error::Config(_) | Error::Misuse(_) => 500,
///         Error::Lost(_) => 409,
///         error if error.fault() == Some(Fault::Auth) => 401,
///         error if error.is_transient() => 503,
///         _ => 502,
///     }
/// }
/// assert_eq!(status(&Error::unavailable("redis", "acquiring", Fault::Timeout, "no answer")), 503);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The request is wrong and will stay so: a name, a lease, a URL, an option.
    Config(Invalid),
    /// The request is right in itself, and wrong here and now: a read lock that is to become a write lock, a blocking call inside of
    /// async code. The program has to be changed.
    Misuse(Invalid),
    /// The store cannot carry this; said before any I/O.
    Unsupported {
        /// The store.
        backend: &'static str,
        /// What it cannot do.
        what: String,
    },
    /// The store cannot answer now; asking again later may help.
    Unavailable {
        /// The store.
        backend: &'static str,
        /// What was being done.
        doing: String,
        /// The kind of trouble.
        fault: Fault,
        /// The store's or the system's own words, without secrets.
        detail: String,
        /// The driver's or the system's own error, without secrets.
        source: Option<Source>,
    },
    /// The store answered and refuses; asking again will not help.
    Backend {
        /// The store.
        backend: &'static str,
        /// What was being done.
        doing: String,
        /// The kind of trouble.
        fault: Fault,
        /// The store's or the system's own words, without secrets.
        detail: String,
        /// The driver's or the system's own error, without secrets.
        source: Option<Source>,
    },
    /// Too few nodes of a quorum agree. Whether asking again may help says [`is_transient`](Self::is_transient).
    TooFewNodes(Box<TooFewNodes>),
    /// The hold in question was lost.
    Lost(Lost),
    /// The locker was closed.
    Closed,
}

/// The kinds of errors, for logs, metrics and codes. [`Error::TooFewNodes`] is one of two, so not each variant has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// [`Error::Config`].
    Config,
    /// [`Error::Misuse`].
    Misuse,
    /// [`Error::Unsupported`].
    Unsupported,
    /// The store cannot answer now; asking again later may help.
    Unavailable,
    /// The store answered and refuses; asking again will not help.
    Refused,
    /// [`Error::Lost`].
    Lost,
    /// [`Error::Closed`].
    Closed,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(invalid) | Self::Misuse(invalid) => invalid.fmt(f),
            Self::Unsupported { backend, what } => write!(f, "{backend} does not support {what}"),
            Self::Unavailable { backend, doing, fault, detail, .. } => {
                write!(f, "{backend} is unavailable while {doing}: {fault}: {detail}")
            }
            Self::Backend { backend, doing, fault, detail, .. } => write!(f, "{backend} refused {doing}: {fault}: {detail}"),
            Self::TooFewNodes(few) => few.fmt(f),
            Self::Lost(lost) => lost.fmt(f),
            Self::Closed => f.write_str("the locker is closed"),
        }
    }
}

// By hand: derived, the source would be the Arc, and nobody could downcast it to what is in it.
impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Unavailable { source, .. } | Self::Backend { source, .. } => {
                source.as_deref().map(|source| -> &(dyn StdError + 'static) { source })
            }
            Self::TooFewNodes(few) => few.source(),
            // What these have inside is what they say.
            Self::Config(_) | Self::Misuse(_) | Self::Unsupported { .. } | Self::Lost(_) | Self::Closed => None,
        }
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Config(invalid)
    }
}

impl From<Lost> for Error {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
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
    /// Too many nodes of a quorum have restarted recently.
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
            Self::Quarantine => "too many nodes restarted recently",
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

    /// A request that is wrong here and now.
    pub(crate) fn misuse(asked: impl Into<String>, problem: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self::Misuse(Invalid::new(asked, problem, allowed))
    }

    /// The store carries no such locks.
    #[must_use]
    pub fn unsupported(backend: &'static str, mode: Mode) -> Self {
        Self::Unsupported { backend, what: mode.to_string() }
    }

    /// The store cannot answer now.
    pub fn unavailable(backend: &'static str, doing: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self::Unavailable { backend, doing: doing.into(), fault, detail: detail.into(), source: None }
    }

    /// The store refuses.
    pub fn backend(backend: &'static str, doing: impl Into<String>, fault: Fault, detail: impl Into<String>) -> Self {
        Self::Backend { backend, doing: doing.into(), fault, detail: detail.into(), source: None }
    }

    /// The same with what a driver or the system said, in [`Unavailable`](Self::Unavailable) and [`Backend`](Self::Backend). It must have
    /// no secrets in its text and its `Debug`: they may be logged.
    #[must_use]
    pub fn with_source(self, error: impl StdError + Send + Sync + 'static) -> Self {
        self.with_shared_source(Arc::new(error))
    }

    /// The same with an error that others have too.
    #[must_use]
    pub fn with_shared_source(mut self, error: Source) -> Self {
        if let Self::Unavailable { source, .. } | Self::Backend { source, .. } = &mut self {
            *source = Some(error);
        }
        self
    }

    /// Which kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Config(_) => ErrorKind::Config,
            Self::Misuse(_) => ErrorKind::Misuse,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::Backend { .. } => ErrorKind::Refused,
            Self::TooFewNodes(few) if few.lasting => ErrorKind::Refused,
            Self::TooFewNodes(_) => ErrorKind::Unavailable,
            Self::Lost(_) => ErrorKind::Lost,
            Self::Closed => ErrorKind::Closed,
        }
    }

    /// Whether asking again later may help.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// The kind of trouble, where a store reported it.
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Unavailable { fault, .. } | Self::Backend { fault, .. } => Some(*fault),
            Self::TooFewNodes(few) => Some(few.fault),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn few(lasting: bool) -> Error {
        let said = |node: &str, said: &str, fault| NodeTrouble { node: node.to_owned(), said: said.to_owned(), fault };
        let nodes = vec![said("a", "no; later", Some(Fault::Timeout)), said("b", "has answered", None)];
        let source = Some(Arc::new(Error::unavailable("redis", "x", Fault::Timeout, "no; later")) as Source);
        let doing = "acquiring".to_owned();
        let few = TooFewNodes { backend: "quorum", doing, needed: 2, of: 3, fault: Fault::Timeout, lasting, nodes, source };
        Error::TooFewNodes(Box::new(few))
    }

    #[test]
    fn a_source_is_what_the_driver_said_and_can_be_taken_for_that() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        for error in [
            Error::unavailable("redis", "acquiring", Fault::Connection, "broken").with_source(broken()),
            Error::backend("redis", "acquiring", Fault::Connection, "broken").with_source(broken()).clone(),
        ] {
            let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
            assert_eq!(source.map(std::io::Error::kind), Some(std::io::ErrorKind::BrokenPipe), "{error:?}");
        }
        assert!(Error::unavailable("redis", "acquiring", Fault::Connection, "broken").source().is_none());
        assert!(Error::Closed.with_source(broken()).source().is_none(), "nobody said that");
        let first = few(false);
        assert!(matches!(first.source().and_then(|source| source.downcast_ref()), Some(Error::Unavailable { .. })));
    }

    #[test]
    fn each_error_is_of_one_kind() {
        let invalid = || Invalid::new("a", "is wrong", "b");
        for (error, kind) in [
            (invalid().into(), ErrorKind::Config),
            (Error::Misuse(invalid()), ErrorKind::Misuse),
            (Error::unsupported("memory", Mode::Read), ErrorKind::Unsupported),
            (Error::unavailable("redis", "x", Fault::Timeout, "y"), ErrorKind::Unavailable),
            (Error::backend("redis", "x", Fault::Auth, "y"), ErrorKind::Refused),
            (few(false), ErrorKind::Unavailable),
            (few(true), ErrorKind::Refused),
            (Error::Closed, ErrorKind::Closed),
        ] {
            assert_eq!((error.kind(), error.is_transient()), (kind, kind == ErrorKind::Unavailable), "{error}");
        }
        assert_eq!(Error::misuse("a", "is wrong", "b").to_string(), "a is wrong; allowed: b");
    }

    #[test]
    fn what_nodes_say_is_in_the_text_and_beside_it() {
        let (error, refusal) = (few(false), few(true));
        assert_eq!(
            error.to_string(),
            "quorum is unavailable while acquiring: no answer in time: 2 of 3 nodes have to agree, and too few count: \
             a: no; later; b: has answered"
        );
        assert!(refusal.to_string().starts_with("quorum refused acquiring: no answer in time: 2 of 3 nodes"), "{refusal}");
        let Error::TooFewNodes(few) = error else { panic!("{error:?}") };
        assert_eq!(few.nodes[1].to_string(), "b: has answered");
        let headline = "quorum is unavailable while acquiring: no answer in time: 2 of 3 nodes have to agree, and too few count";
        assert_eq!(few.headline(), headline);
    }
}
