//! Fences for objects, over [`object_store`]: a stale writer overwrites nothing.
//!
//! | | what it needs of the store | what others see |
//! |---|---|---|
//! | [`InPlace`] | puts that replace only what was read, and metadata: Azure and Google Cloud Storage promise it | one object, with the token in its metadata |
//! | [`Versions`] | puts that do not overwrite: all stores, also S3 and a directory | an object per write, named by its token; the last one is current |
//!
//! ```
//! use std::sync::Arc;
//!
//! use object_store::memory::InMemory;
//! use object_store::path::Path;
//! use tenure::Token;
//! use tenure::fence::object::Versions;
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let reports = Versions::new(Arc::new(InMemory::new()));
//! let at = Path::from("reports/today");
//! reports.put(&at, "from the new holder".into(), &Token::new(9)).await?; // or &guard
//! let late = reports.put(&at, "from the old one".into(), &Token::new(5)).await;
//! assert_eq!(late.unwrap_err().stale().unwrap().seen, Token::new(9));
//! let (token, object) = reports.get(&at).await?.expect("written");
//! assert_eq!((token, &*object.bytes().await?), (Token::new(9), &b"from the new holder"[..]));
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap();
//! ```
//!
//! Deleting leaves a tombstone, because without a fence every write passes. A program that deletes objects by
//! other means, and a lifecycle rule of the bucket, delete the fence.

mod in_place;
mod probe;
mod versions;

pub use self::in_place::InPlace;
pub use self::versions::Versions;

/// Why a fenced write to an object store did not happen.
pub type Error = super::Error<object_store::Error>;

/// How often a conflict is tried again. Each conflict means that another writer has made progress.
const TRIES: usize = 64;

/// Whether another writer came between the read and the write.
fn is_conflict(error: &object_store::Error) -> bool {
    use object_store::Error as E;
    matches!(error, E::Precondition { .. } | E::AlreadyExists { .. } | E::NotFound { .. })
}

/// The store cannot do what the fence is made of.
fn unsupported(store: &dyn object_store::ObjectStore, what: &str) -> Error {
    Error::Request(crate::Error::Unsupported {
        backend: "the object store",
        what: format!("{what} ({store}); Versions needs less"),
    })
}
