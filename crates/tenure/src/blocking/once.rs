//! Work that is done once, for threads.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{block_on, park_on};
use crate::engine::background;
use crate::once::{Done, Error, OnceAttempt, Start};

/// As [`crate::once::Ledger`], for threads. Its options are those of the async one, from which it is made.
///
/// ```
/// # use std::sync::Arc;
/// # use tenure::once::{Ledger, MemoryRecords};
/// let locker = tenure::blocking::Locker::connect("memory:")?;
/// let ledger = tenure::blocking::Ledger::from(Ledger::new(locker.as_async(), Arc::new(MemoryRecords::default())));
/// let done = ledger.once("payment:77").run(|attempt| {
///     println!("under token {}", attempt.token());
///     Ok::<_, String>("receipt 1".to_owned())
/// });
/// assert_eq!(done.unwrap().value, "receipt 1");
/// # Ok::<(), tenure::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ledger(crate::once::Ledger);

/// As [`crate::once::Once`], for threads.
#[derive(Debug, Clone)]
#[must_use = "nothing is done yet"]
pub struct Once {
    once: crate::once::Once,
    asked: String,
}

impl From<crate::once::Ledger> for Ledger {
    fn from(ledger: crate::once::Ledger) -> Self {
        Self(ledger)
    }
}

impl Ledger {
    /// As [`crate::once::Ledger::once`].
    pub fn once(&self, key: impl AsRef<str>) -> Once {
        Once { once: self.0.once(&key), asked: key.as_ref().chars().take(32).collect() }
    }
}

impl Once {
    /// As [`crate::once::Once::run_with`], but **a thread is not stopped when the lock is lost**: ask
    /// [`OnceAttempt::is_valid`] before a step that must not be done twice.
    pub fn run<T, E>(self, work: impl FnOnce(OnceAttempt) -> Result<T, E>) -> Result<Done<T>, Error<T, E>>
    where
        T: Serialize + DeserializeOwned,
    {
        let Self { once, asked } = self;
        let begun = block_on(async { Ok((once.start().await, background::handle()?)) });
        let (start, background) = begun.map_err(|cause| Error::NotBegun { asked, cause })?;
        match start? {
            Start::Done(done) => Ok(done),
            Start::Yours(started) => {
                let done = work(started.attempt());
                park_on(&background, started.end(done))
            }
        }
    }
}
