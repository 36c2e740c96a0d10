//! Whether a store keeps the promises that [`InPlace`](super::InPlace) relies on. Some answer as if they did.

use object_store::path::Path;
use object_store::{
    Attributes, Error as StoreError, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};

use super::in_place::{marked, token_of, version_of};
use super::{Error, is_conflict, unsupported};
use crate::name::ClientId;

pub(super) async fn check(store: &dyn ObjectStore, scratch: &Path) -> Result<(), Error> {
    let name = ClientId::random().map_err(|e| Error::Request(e.into()))?;
    let location = scratch.clone().join(format!("tenure-probe-{name}"));
    let checked = try_out(store, &location).await;
    let gone = store.delete(&location).await;
    checked?;
    match gone {
        // Some say so, some do not.
        Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
        Err(error) => Err(Error::Store(error)),
    }
}

async fn try_out(store: &dyn ObjectStore, location: &Path) -> Result<(), Error> {
    let put = async |mode, token: &str| {
        let options = PutOptions { mode, attributes: marked(Attributes::new(), token.to_owned()), ..PutOptions::default() };
        match store.put_opts(location, "probe".into(), options).await {
            Ok(_) => Ok(true),
            Err(error) if is_conflict(&error) => Ok(false),
            Err(StoreError::NotImplemented { operation, .. }) => Err(unsupported(store, &operation)),
            Err(error) => Err(Error::Store(error)),
        }
    };
    let look = async |expected: &str| {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let seen = store.get_opts(location, head).await.map_err(Error::Store)?;
        match token_of(location, &seen.attributes) {
            Ok(token) if token.to_string() == expected => Ok(version_of(seen.meta)),
            _ => Err(unsupported(store, "attributes that can be read again")),
        }
    };
    let promise = |kept: bool, what| if kept { Ok(()) } else { Err(unsupported(store, what)) };

    promise(put(PutMode::Create, "1").await?, "new objects")?;
    promise(!put(PutMode::Create, "2").await?, "puts that do not overwrite")?;
    let first = look("1").await?;
    promise(first != UpdateVersion { e_tag: None, version: None }, "ETags or versions")?;
    promise(put(PutMode::Update(first.clone()), "2").await?, "puts that replace what was read")?;
    let second = look("2").await?;
    promise(first != second, "a new ETag for the same content")?;
    promise(!put(PutMode::Update(first), "3").await?, "puts that replace only what was read")
}
