//! A new object per write, named by its token: the last name is the current one.

use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, GetResult, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::{Error, TRIES};
use crate::fence::{FenceCounters, FenceStats, Pass, decimal};
use crate::name::Token;

/// Objects of which each write makes a new version, `location/token-number`, with as many digits always, so that the order of names is the
/// order of tokens. A stale writer can add no version that would be read.
///
/// Old versions stay until they are [pruned](Self::prune). A reader without this type must take the last name in the list; a name
/// that ends in `.gone` is a deletion. Names that are not of this form are ignored.
#[derive(Debug, Clone)]
pub struct Versions {
    store: Arc<dyn ObjectStore>,
    counters: FenceCounters,
}

/// A version, as its name says. In order: of two with the same numbers the deletion is the later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    token: Token,
    /// Which write of this token.
    number: u32,
    gone: bool,
}

const GONE: &str = ".gone";

impl Name {
    fn at(self, location: &Path) -> Path {
        let Self { token, number, gone } = self;
        location.clone().join(format!("{:019}-{number:010}{}", token.get(), if gone { GONE } else { "" }))
    }

    fn parse(location: &Path, found: &Path) -> Option<Self> {
        let text = found.prefix_match(location)?.next()?.as_ref().to_owned();
        let (numbers, gone) = text.strip_suffix(GONE).map_or((&*text, false), |numbers| (numbers, true));
        let (token, number) = numbers.split_once('-')?;
        let name = Self { token: token.parse().ok()?, number: number.parse().ok()?, gone };
        (name.at(location) == *found).then_some(name)
    }
}

impl Versions {
    /// On any store.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store, counters: FenceCounters::default() }
    }

    /// What it has let through and refused. Clones count together.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Writes a version. May be repeated, and is another version with the same content then.
    ///
    /// `Ok` says that the version was written, and was the last one when this looked after it. A writer with a larger token
    /// in between makes it [`Stale`](crate::fence::Stale): then it is there, and is never read.
    pub async fn put(&self, location: &Path, payload: PutPayload, pass: &dyn Pass) -> Result<(), Error> {
        self.add(location, payload, false, pass).await
    }

    /// Writes an empty version that says that the object is deleted. May be repeated.
    pub async fn delete(&self, location: &Path, pass: &dyn Pass) -> Result<(), Error> {
        self.add(location, PutPayload::new(), true, pass).await
    }

    /// Reads the last version, and its token. `None`: there is none, or it says that the object is deleted.
    pub async fn get(&self, location: &Path) -> Result<Option<(Token, GetResult)>, Error> {
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let Some(last) = self.names(location).await?.into_iter().max().filter(|last| !last.gone) else { return Ok(None) };
            match self.store.get(&last.at(location)).await {
                Ok(object) => return Ok(Some((last.token, object))),
                // Pruned meanwhile, so that there is a newer one.
                Err(StoreError::NotFound { .. }) if tries > 0 => {}
                Err(error) => return Err(Error::Store(error)),
            }
        }
    }

    /// Removes all versions but the last two, and says how many. The last one is the fence; the one before it is for readers of a
    /// directory, whose list may lack a name that is written meanwhile.
    pub async fn prune(&self, location: &Path) -> Result<usize, Error> {
        let mut names = self.names(location).await?;
        names.sort_unstable();
        names.truncate(names.len().saturating_sub(2));
        for name in &names {
            match self.store.delete(&name.at(location)).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => {}
                Err(error) => return Err(Error::Store(error)),
            }
        }
        Ok(names.len())
    }

    async fn add(&self, location: &Path, payload: PutPayload, gone: bool, pass: &dyn Pass) -> Result<(), Error> {
        decimal(pass.token()).map_err(Error::Request)?;
        let token = pass.token();
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let last = self.names_from(location, token).await?.into_iter().max();
            if let Some(last) = last.filter(|last| last.token > token) {
                return Ok(self.counters.check(location.as_ref(), pass, last.token)?);
            }
            let Some(number) = last.map_or(Some(0), |last| last.number.checked_add(1)) else {
                let asked = format!("another version of {location} with token {token}");
                return Err(Error::Request(crate::Error::config(asked, "has no number left", "4294967296 writes per token")));
            };
            let name = Name { token, number, gone };
            match self.store.put_opts(&name.at(location), payload.clone(), PutOptions::from(PutMode::Create)).await {
                Ok(_) => {
                    // Another writer may have come between the read and the write, and will not see this version.
                    let last = self.names_from(location, token).await?.into_iter().max();
                    let seen = last.map_or(token, |last| last.token.max(token));
                    return Ok(self.counters.check(location.as_ref(), pass, seen)?);
                }
                Err(StoreError::AlreadyExists { .. }) if tries > 0 => {}
                Err(error) => return Err(Error::Store(error)),
            }
        }
    }

    async fn names(&self, location: &Path) -> Result<Vec<Name>, Error> {
        self.names_from(location, Token::new(0)).await
    }

    /// Versions with this token and larger ones: all that a writer has to know, however many older ones there are.
    async fn names_from(&self, location: &Path, token: Token) -> Result<Vec<Name>, Error> {
        let before = location.clone().join(format!("{:019}", token.get()));
        let found = self
            .store
            .list_with_offset(Some(location), &before)
            .try_filter_map(|found| std::future::ready(Ok(Name::parse(location, &found.location))));
        found.try_collect().await.map_err(Error::Store)
    }
}
