//! One object that is replaced, under the condition that it is still the one that was looked at.

use std::borrow::Cow;
use std::sync::Arc;

use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error as StoreError, GetOptions, GetResult, ObjectMeta, ObjectStore, PutMode, PutOptions, PutPayload,
    UpdateVersion,
};

use super::{Error, TRIES, is_conflict, probe};
use crate::fence::{FenceCounters, FenceStats, Pass, decimal};
use crate::name::Token;

/// Without a separator, because Azure takes only what could be a name in C#.
const TOKEN: Attribute = Attribute::Metadata(Cow::Borrowed("tenuretoken"));
const DELETED: Attribute = Attribute::Metadata(Cow::Borrowed("tenuredeleted"));

/// Objects that keep the largest token in their metadata, and are replaced only if they have not changed since they were read.
///
/// Others read them as they are; a deleted one is empty to them. An object without a token is left alone: its writer
/// does not know of the fence, and would overwrite the token the next time.
#[derive(Debug, Clone)]
pub struct InPlace {
    store: Arc<dyn ObjectStore>,
    counters: FenceCounters,
}

/// What is there, as far as a writer needs to know.
struct Seen {
    token: Token,
    version: UpdateVersion,
}

impl InPlace {
    /// Tries out, with an object below `scratch` that goes away again, whether the store keeps the promises that this rests on, and
    /// refuses it otherwise.
    ///
    /// Plain S3 is refused: the ETag of an object is made from its content there, so that a writer of the same content
    /// with a larger token cannot be seen in it.
    pub async fn open(store: Arc<dyn ObjectStore>, scratch: &Path) -> Result<Self, Error> {
        probe::check(&*store, scratch).await?;
        Ok(Self { store, counters: FenceCounters::default() })
    }

    /// What it has let through and refused. Clones count together.
    #[must_use]
    pub fn stats(&self) -> FenceStats {
        self.counters.stats()
    }

    /// Writes an object. May be repeated.
    pub async fn put(&self, location: &Path, payload: PutPayload, pass: &dyn Pass) -> Result<(), Error> {
        self.put_with(location, payload, Attributes::new(), pass).await
    }

    /// The same, with attributes such as the type of the content.
    pub async fn put_with(
        &self,
        location: &Path,
        payload: PutPayload,
        attributes: Attributes,
        pass: &dyn Pass,
    ) -> Result<(), Error> {
        let token = decimal(pass.token()).map_err(Error::Request)?;
        let attributes = marked(attributes, token);
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let mode = match self.look(location).await? {
                Some(Seen { token, .. }) if token > pass.token() => {
                    return Ok(self.counters.check(location.as_ref(), pass, token)?);
                }
                Some(Seen { version, .. }) => PutMode::Update(version),
                None => PutMode::Create,
            };
            let options = PutOptions { mode, attributes: attributes.clone(), ..PutOptions::default() };
            match self.store.put_opts(location, payload.clone(), options).await {
                Ok(_) => return Ok(self.counters.check(location.as_ref(), pass, pass.token())?),
                // Read again: the other writer may have a larger token.
                Err(error) if is_conflict(&error) && tries > 0 => {}
                Err(error) => return Err(Error::Store(error)),
            }
        }
    }

    /// Deletes an object: an empty one takes its place, and keeps the token. May be repeated.
    pub async fn delete(&self, location: &Path, pass: &dyn Pass) -> Result<(), Error> {
        let attributes = Attributes::from_iter([(DELETED, "1")]);
        self.put_with(location, PutPayload::new(), attributes, pass).await
    }

    /// Reads an object, and the token that it was written with. `None`: there is none, or it was deleted.
    pub async fn get(&self, location: &Path) -> Result<Option<(Token, GetResult)>, Error> {
        let object = match self.store.get_opts(location, GetOptions::default()).await {
            Err(StoreError::NotFound { .. }) => return Ok(None),
            object => object.map_err(Error::Store)?,
        };
        let token = token_of(location, &object.attributes)?;
        Ok(object.attributes.get(&DELETED).is_none().then_some((token, object)))
    }

    async fn look(&self, location: &Path) -> Result<Option<Seen>, Error> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        match self.store.get_opts(location, head).await {
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(Error::Store(error)),
            Ok(GetResult { attributes, meta, .. }) => {
                Ok(Some(Seen { token: token_of(location, &attributes)?, version: version_of(meta) }))
            }
        }
    }
}

pub(super) fn marked(mut attributes: Attributes, token: String) -> Attributes {
    attributes.insert(TOKEN, token.into());
    attributes
}

pub(super) fn version_of(meta: ObjectMeta) -> UpdateVersion {
    UpdateVersion { e_tag: meta.e_tag, version: meta.version }
}

pub(super) fn token_of(location: &Path, attributes: &Attributes) -> Result<Token, Error> {
    let kept = attributes.get(&TOKEN).and_then(|value| value.as_ref().parse().ok());
    kept.ok_or_else(|| {
        let (asked, problem) = (format!("the object {location}"), "is there without a token in its metadata");
        Error::Request(crate::Error::config(asked, problem, "objects that were written through a fence from the first time on"))
    })
}
