//! What opening a store needs: a store of your own gets a URL here.
//!
//! A [`Scheme`] says how the URLs of a store look and how one is opened. [`connect::register`](crate::connect::register) makes
//! it known to the process; then its URLs work wherever one does: in [`Locker::connect`](crate::Locker::connect), as nodes of
//! `quorum:` (if the store is a [`Voter`](crate::backend::Voter)) and in the conformance suite.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tenure::backend::Opened;
//! use tenure::backends::memory::Memory;
//! use tenure::store::{Address, Context, Scheme};
//! use tenure::{Locker, Result};
//!
//! static TOY: Scheme = Scheme::new("toy", |address, context| Box::pin(open(address, context))).options(&["speed"]);
//!
//! async fn open(mut address: Address, context: Context) -> Result<Opened> {
//!     let fast = address.options().one_of("speed", &[("fast", true), ("slow", false)])?;
//!     assert_eq!((address.place(), fast), ("//host/x", Some(true)));
//!     let password = address.credentials().and_then(|login| login.password());
//!     assert_eq!(password.map(|password| password.text()), Some("secret"));
//!     // Here it is a client of another store; yours implements `Backend`.
//!     Ok(Opened::from(Arc::new(Memory::new(context.client, context.clock))))
//! }
//!
//! # async fn example() -> Result<()> {
//! tenure::connect::register(&TOY)?;
//! let locker = Locker::connect("toy://user:secret@host/x?speed=fast&lease=10s&prefix=p:").await?;
//! let guard = locker.mutex("stock:1001").lock().await?;
//! # drop(guard);
//! # locker.close().await
//! # }
//! # fn main() -> Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
//! ```
//!
//! The common part is done before a store is asked: credentials are taken off the URL, so that no label, no error and no
//! `Debug` made of the rest can show them; an option that the scheme does not have is refused; `lease` and `timeout` are
//! read, and `prefix` is put before every name.

mod address;
mod options;
mod scheme;

use std::pin::Pin;
use std::time::Duration;

use percent_encoding::percent_decode_str;

pub use self::address::{Address, Credentials};
pub(crate) use self::address::{Label, Target, misplaced};
pub use self::options::Options;
pub(crate) use self::options::{COMMON, key, of_option};
pub(crate) use self::scheme::Form;
pub use self::scheme::{Open, Scheme};
use crate::backend::{Client, Opened};
use crate::clock::{Clock, Drift};
#[cfg(any(test, fuzzing))]
use crate::error::Error;
use crate::error::Result;

/// The future of a store that is being opened.
pub type Opening = Pin<Box<dyn Future<Output = Result<Opened>> + Send>>;

/// A store whose options are set in code: `RedisOptions`, `SqliteOptions` and others, in [`options`](crate::options). A store of
/// another crate is handed to [`Builder::backend`](crate::Builder::backend) when it is open.
pub trait StoreOptions: Sealed + std::fmt::Debug + Send + Sync + 'static {
    /// The scheme of the URL that would say the same.
    #[doc(hidden)]
    fn scheme(&self) -> &'static str;

    /// What stands behind the colon of that, without credentials. `None` where every locker has a store of its own.
    #[doc(hidden)]
    fn place(&self) -> Option<String>;

    /// Opens it, any number of times.
    #[doc(hidden)]
    fn open(&self, context: Context) -> Opening;
}

mod sealed {
    /// Only this crate has such stores.
    pub trait Sealed {}
}
pub(crate) use self::sealed::Sealed;

/// What a store is given beside its [`Address`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Context {
    /// The client that opens it.
    pub client: Client,
    /// The lease clock of its locker. A store in this process counts leases by it.
    pub clock: Clock,
    /// The longest that one call may take, reconnecting included. The engine enforces it too.
    pub timeout: Duration,
    /// The lease of claims that give none.
    pub lease: Duration,
    /// How much its locker shortens leases.
    pub drift: Drift,
    /// The prefix of all names. A store may also keep records that belong to no name under it. Names have it already.
    pub prefix: String,
    /// Opens other stores, for one that is made of them.
    pub(crate) registry: Registry,
}

/// All schemes, as a store sees them that is made of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Registry {
    /// Reads a URL.
    pub(crate) read: fn(&str) -> Result<Target>,
    /// Opens what it names.
    pub(crate) open: fn(Target, Context) -> Opening,
}

impl Registry {
    /// Knows no scheme: for a store that is opened by itself.
    #[cfg(any(test, fuzzing))]
    #[allow(dead_code, reason = "not every store is fuzzed in every build")]
    pub(crate) const NONE: Self = Self { read: |_| Err(Error::Closed), open: |_, _| Box::pin(async { Err(Error::Closed) }) };
}

/// Undoes percent-encoding; `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}
