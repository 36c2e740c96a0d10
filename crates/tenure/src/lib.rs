//! Distributed locks: **a lock that tells you when you have lost it, and a number that stops you when you don't listen.**
//!
//! ```
//! # async fn example() -> tenure::Result<()> {
//! let locker = tenure::Locker::connect("memory:").await?; // or "sqlite:", "redis://localhost", …
//! let guard = locker.mutex("stock:1001").lock().await?; // waits; kept alive until dropped
//!
//! // Dropped the moment the lock is lost; the token goes along with every write.
//! let sold = guard.run(async { sell(guard.token().get()).await }).await?;
//!
//! guard.release().await?; // or drop it
//! # let _: u32 = sold;
//! # locker.close().await
//! # }
//! # async fn sell(_token: u64) -> u32 { 1 }
//! # fn main() -> tenure::Result<()> { tokio::runtime::Runtime::new().unwrap().block_on(example()) }
//! ```
//!
//! # What it is
//! A [`Locker`] is a client of one store, named by a [URL](connect) or by [options](options) in code. Its locks hand out [`Guard`]s. A guard
//! renews its lease in the background, knows when that fails ([`Guard::lost`], [`Guard::is_valid`], [`Guard::run`]), and carries a
//! fencing [`Token`] that grows with every grant.
//!
//! | | |
//! |---|---|
//! | [`Mutex`] | one holder; re-entrant by [`Owner`]; [`fair`](Mutex::fair) in order of arrival |
//! | [`RwLock`] | many readers or one writer; a writer may become a reader |
//! | [`Semaphore`] | up to so many permits, each with a lease |
//! | [`AnyLock`] | one of these, chosen when the program runs |
//! | [`Multi`], [`Striped`] | several locks as one; one of several |
//! | [`Latch`] | waits for a count of zero |
//! | [`Election`] | one leader, with a value that all can read |
//! | [`Partitions`], [`Serial`] | work spread over members; the work of each key in order |
//! | [`fence`] | refuses late writes at SQL databases, Redis, files, objects and HTTP services |
#![cfg_attr(feature = "once", doc = "| [`once`] | work that is done once, with its result |")]
#![cfg_attr(not(feature = "once"), doc = "| `once` | work that is done once, with its result |")]
#![cfg_attr(feature = "macros", doc = "| [`locked`](macro@locked) | an async function that runs under a lock |")]
#![cfg_attr(feature = "blocking", doc = "| [`blocking`] | all of it for threads |")]
#![cfg_attr(feature = "testing", doc = "| [`testing`] | a store for your own tests: locks that are lost when the test says so |")]
//!
//! Locks run on a thread of the library's own: a blocked or ended runtime loses no lock, and any executor works. Every
//! acquire may be dropped at any point and leaves nothing behind.
//!
//! # What it is not
//! A lock alone protects nothing outside of the store: a process can be paused between its last look at the clock and
//! its write. Only the token stops it then, checked by the storage that it writes to.
//!
//! # Which store
//! | URL | shared by | a holder that dies is noticed | the store restarts or fails over |
//! |---|---|---|---|
//! | `memory:` | one process | – | – |
//! | `sqlite:` | one machine | at once | holds go on |
//! | `redis://host` | all clients that reach the server | after the lease | holds are lost unless persisted; tokens still grow |
//! | `redis+sentinel://…` | the same | after the lease | holds that the new master has not got are lost; `sync=1` makes that rare |
//! | `redis+cluster://…` | the same | after the lease | the same, per slot |
//! | `quorum:a\|b\|c` | all clients that reach a majority | after the lease | one of three servers may be lost, two of five |
//!
//! [`Capabilities`](backend::Capabilities) says it in types. To carry locks on another store, implement
//! [`Backend`](backend::Backend), give it a [URL scheme](store) and run the `conformance` suite on it.
//!
//! # Features
//! | on by default | |
//! |---|---|
//! | `redis` | Redis alone, by Sentinel, as a Cluster, as nodes of a quorum; fences and records there |
//! | `tls` | TLS to servers, always verified |
//! | `sqlite` | the embedded store, with SQLite built in; fences and records there |
//! | `once` | work that is done once |
//!
//! | on request | |
//! |---|---|
//! | `postgres`, `mysql`, `sqlx` | fences and records over tokio-postgres, mysql_async and sqlx |
//! | `http`, `object` | fences between services (tower), and for objects (object_store) |
//! | `blocking` | the facade for threads |
//! | `macros` | the attribute `locked` |
//! | `testing` | a store for tests of your own |
//! | `conformance` | the suite for stores |
//!
//! No feature changes how anything behaves.
//!
//! # Platforms
//! Linux is tested. Other Unix systems are not: the lease clock stands still there while the machine is suspended, so a holder can take a
//! lease that has ended for one that lasts. Windows is not supported.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod audit;
pub mod backend;
pub mod backends;
#[cfg(feature = "blocking")]
pub mod blocking;
mod caller;
pub mod clock;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod connect;
pub mod duration;
mod engine;
mod error;
pub mod fence;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod invalid;
mod lifeline;
mod locker;
mod lost;
mod mode;
mod name;
#[cfg(feature = "once")]
pub mod once;
mod own_thread;
mod primitives;
mod retry;
pub mod secret;
pub mod signal;
mod sql;
mod stats;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use engine::guard::{Guard, HoldState, Watcher};
pub use engine::owner::Owner;
pub use error::{Error, ErrorKind, Fault, NodeTrouble, Result, Source, TooFewNodes};
pub use invalid::Invalid;
pub use locker::{Builder, Locker};
pub use lost::{Lost, LostReason};
pub use mode::Mode;
pub use name::{ClientId, OwnerId, Resource, Token};
pub use primitives::any::AnyLock;
pub use primitives::election::{Election, Leader};
pub use primitives::latch::Latch;
pub use primitives::multi::{Multi, MultiGuard};
pub use primitives::mutex::Mutex;
pub use primitives::partitions::{Partition, Partitions};
pub use primitives::rwlock::RwLock;
pub use primitives::semaphore::Semaphore;
pub use primitives::serial::Serial;
pub use primitives::striped::Striped;
pub use retry::RetryPolicy;
pub use stats::{Histogram, Stats};

/// Runs an async function under a lock, from its first step to its last.
///
/// ```
/// use tenure::{Error, Locker};
///
/// #[derive(Debug)]
/// enum NotPaid {
///     /// Somebody else is paying it.
///     Busy,
///     /// The store is away, or the lock was lost half-way.
///     Lock(Error),
/// }
///
/// impl From<Error> for NotPaid {
///     fn from(error: Error) -> Self {
///         Self::Lock(error)
///     }
/// }
///
/// #[tenure::locked(key = "order:{id}", wait = "5s", busy = Err(NotPaid::Busy))]
/// async fn pay(locker: &Locker, id: u64) -> Result<u64, NotPaid> {
///     // The guard is here, and with it the token for the fence.
///     Ok(guard.token().get())
/// }
/// # async fn example() -> Result<(), NotPaid> {
/// let locker = Locker::connect("memory:").await?;
/// assert!(pay(&locker, 7).await? > 0);
/// # Ok(())
/// # }
/// # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
/// ```
///
/// | | |
/// |---|---|
/// | `key` | the name, as in `format!`: it may contain arguments |
/// | `wait` | how long at most: `"5s"`, `"250ms"`; `"0s"` asks once; `"forever"` |
/// | `busy` | what is returned if the lock was busy all the time; required unless the wait is forever |
/// | `locker` | where the locker is, `self.locker` for example; without it, the argument `locker` |
/// | `guard` | another name for the guard inside |
///
/// The function returns a `Result` whose error is made from [`Error`]: the store may be away, and the lock may be lost. The body is
/// dropped the moment it is. Only a [fence] stops what it has sent by then.
///
/// Arguments that the body does not move are dropped after the release, as those of a function are after its body: a transaction that is
/// passed by value and not committed is rolled back without the lock.
///
/// A function that could run without its lock does not compile:
///
/// ```compile_fail
/// #[tenure::locked(key = "order", wait = "5s")] // and when it is busy?
/// async fn pay(locker: &tenure::Locker) -> tenure::Result<()> { Ok(()) }
/// ```
/// ```compile_fail
/// #[tenure::locked(key = "order", wait = "forever")]
/// fn pay(locker: &tenure::Locker) -> tenure::Result<()> { Ok(()) } // not async
/// ```
/// ```compile_fail
/// #[tenure::locked(key = "order", wait = "forever")]
/// async fn pay(locker: &tenure::Locker) {} // how would it report that the lock is lost?
/// ```
/// ```compile_fail
/// #[tenure::locked(key = "order", wait = "forever")]
/// async fn pay(locker: &tenure::Locker, guard: u64) -> tenure::Result<()> { Ok(()) } // which guard is meant?
/// ```
/// ```compile_fail
/// #[tenure::locked(wait = "forever")] // which lock?
/// async fn pay(locker: &tenure::Locker) -> tenure::Result<()> { Ok(()) }
/// ```
#[cfg(feature = "macros")]
pub use tenure_macros::locked;

/// Stores whose options are set in code, for [`Builder::connect_with`].
///
/// A URL says the same for most: it fits into an environment variable. Only these options have: a TLS configuration of your own,
/// credentials that change while the program runs, the server of a client that you have.
pub mod options {
    pub use crate::backends::memory::MemoryOptions;
    pub use crate::backends::quorum::QuorumOptions;
    #[cfg(feature = "redis")]
    pub use crate::backends::redis::{Layout, RedisOptions, Wake};
    #[cfg(feature = "sqlite")]
    pub use crate::backends::sqlite::SqliteOptions;
    pub use crate::store::{Credentials, StoreOptions};
    #[cfg(all(feature = "redis", feature = "tls"))]
    pub use rustls;
}

/// What comes with an [`Election`].
pub mod election {
    pub use crate::primitives::election::{Changes, Leader};
}

/// What comes with [`Partitions`] and [`Serial`].
pub mod partitions {
    pub use crate::primitives::partitions::{Member, Partition};
    pub use crate::primitives::serial::Outcome;
}

/// The example on README's first screen compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The example on the page of this crate alone compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct CrateReadme;

/// The examples of the page on work that is done once compile and run.
#[cfg(all(doctest, feature = "once", feature = "sqlite"))]
#[doc = include_str!("../../../docs/once.md")]
struct OncePage;

/// The example of the page on tests of users compiles and runs.
#[cfg(all(doctest, feature = "testing"))]
#[doc = include_str!("../../../docs/testing.md")]
struct TestingPage;

/// The examples of the pages on locks compile and run.
#[cfg(all(doctest, feature = "blocking", feature = "macros"))]
mod pages {
    macro_rules! pages {
        ($($name:ident: $file:literal)*) => {
            $(#[doc = include_str!(concat!("../../../docs/", $file))] struct $name;)*
        };
    }

    pages! {
        Locks: "locks.md"
        Mutex: "locks/mutex.md"
        Fair: "locks/fair.md"
        RwLock: "locks/rwlock.md"
        Semaphore: "locks/semaphore.md"
        Latch: "locks/latch.md"
        Multi: "locks/multi.md"
        Striped: "locks/striped.md"
        Election: "locks/election.md"
        Partitions: "locks/partitions.md"
        Redlock: "redlock.md"
        Stores: "stores.md"
        Fencing: "fencing.md"
    }
}
