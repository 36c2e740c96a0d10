//! [`Error`]: what became of the work, as far as it is known.

use std::fmt;
use std::time::Duration;

use super::Key;
use crate::duration::show;
use crate::fence::Stale;
use crate::lost::Lost;
use crate::name::Token;

/// Why there is no recorded result. `T` is what the work returns, `E` its own error.
///
/// Each says whether the work was done: see the table in `docs/once.md`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error<T, E> {
    /// Nothing was done here: another process was doing it for as long as this call waited.
    #[error("{key:?} is being done by another call, for longer than the {} that was waited", show(*.waited))]
    Underway {
        /// What was to be done.
        key: Key,
        /// How long was waited.
        waited: Duration,
    },
    /// Nothing was done here: an earlier attempt began and never said that it finished, and
    /// [`at_most_once`](super::Ledger::at_most_once) was asked for.
    #[error(
        "{key:?} was begun under token {token} and never said to be finished, so at_most_once does not begin it again; \
         find out what became of it, and then forget that token"
    )]
    Unfinished {
        /// What was to be done.
        key: Key,
        /// Whose attempt that was.
        token: Token,
    },
    /// Nothing was done here: it is done, and the recorded result is not of the type that is asked for.
    #[error("{key:?} was done under token {token}, but its result is not what is asked for: {problem}")]
    Unreadable {
        /// What was to be done.
        key: Key,
        /// Under which token it was done.
        token: Token,
        /// What is wrong with the result.
        problem: String,
    },
    /// Nothing was done here: the lock was lost, and another process has begun.
    #[error("{:?} was not begun under token {}: token {} has begun it", .0.resource, .0.token, .0.seen)]
    Overtaken(Stale),
    /// Nothing was done here: the request is wrong, or the lock or the record could not be had. The mark may be there.
    #[error("{asked:?} was not begun: {cause}")]
    NotBegun {
        /// What was to be done.
        asked: String,
        /// Why not.
        cause: crate::Error,
    },
    /// The work failed by itself. Whatever it did by then, the next call runs it again and is told of this attempt.
    #[error("{key:?} failed under token {token}: {error}")]
    Failed {
        /// What was to be done.
        key: Key,
        /// Under which token.
        token: Token,
        /// The work's own error.
        error: E,
    },
    /// The work was dropped where it stood, because the lock was lost. The next call runs it again and is told of this attempt.
    #[error("{key:?} was stopped halfway: {lost}")]
    Stopped {
        /// What was to be done.
        key: Key,
        /// The loss.
        lost: Lost,
    },
    /// The work was done, but the lock had been lost and another process has begun or done it too. **It was done twice.** This
    /// value is recorded nowhere.
    #[error(
        "{:?} was done under token {}, but token {} has begun or done it too: it was done twice, and this result is not recorded",
        .stale.resource, .stale.token, .stale.seen
    )]
    DoneTwice {
        /// Both tokens.
        stale: Stale,
        /// What the work returned.
        value: T,
    },
    /// The work was done, but that could not be recorded. **It may be done again.**
    #[error("{key:?} was done under token {token}, but that could not be recorded, so it may be done again: {cause}")]
    Unrecorded {
        /// What was done.
        key: Key,
        /// Under which token.
        token: Token,
        /// What the work returned.
        value: T,
        /// Why it is not recorded.
        cause: crate::Error,
    },
}

impl<T, E> Error<T, E> {
    /// What the work returned, if it ended here.
    pub fn value(self) -> Option<T> {
        match self {
            Self::DoneTwice { value, .. } | Self::Unrecorded { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The work's own error.
    pub fn failure(self) -> Option<E> {
        match self {
            Self::Failed { error, .. } => Some(error),
            _ => None,
        }
    }

    pub(super) fn not_begun(asked: &Key, cause: impl Into<crate::Error>) -> Self {
        Self::NotBegun { asked: asked.to_string(), cause: cause.into() }
    }
}

/// Without the value, which may be personal.
impl<T, E: fmt::Display> fmt::Debug for Error<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
