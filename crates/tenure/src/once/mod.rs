//! Work that is done once, however often it is requested.
//!
//! ```
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use tenure::once::{Ledger, MemoryRecords};
//!
//! let locker = tenure::Locker::connect("memory:").await?; // the lock: "redis://…", "sqlite:", …
//! let ledger = Ledger::new(&locker, Arc::new(MemoryRecords::default())); // the records: Redis, PostgreSQL, …
//!
//! let first = ledger.once("payment:77").run(charge()).await?;
//! let again = ledger.once("payment:77").run(charge()).await?; // runs nothing
//! assert_eq!((&*first.value, first.replayed), ("receipt 1", false));
//! assert_eq!((&*again.value, again.replayed), ("receipt 1", true));
//! # Ok(locker.close().await?)
//! # }
//! # async fn charge() -> Result<String, std::io::Error> { Ok("receipt 1".to_owned()) }
//! # fn main() { tokio::runtime::Runtime::new().unwrap().block_on(example()).unwrap() }
//! ```
//!
//! # Two forms
//! - **At least once** ([`Ledger`]): the lock, the record and the work are three things. A crash between the end of the work and its
//!   record means that the next call does the work again, and is [told so](OnceAttempt::unfinished) before it begins. With
//!   [`Ledger::at_most_once`] it is refused instead.
//! - **Exactly once** ([`OnceTable`]): the record is in the database that the work writes to, and in the same transaction. Either
//!   both are there or neither, with a lock or without.
//!
//! # What is kept
//! A [`Record`] per key: the token of the last attempt, that of an earlier one that began and did not record its end, and the
//! result as JSON. Recording is fenced: an attempt that was overtaken cannot record, and is [told](Error::DoneTwice) that the work
//! was done twice. Records end by age ([`Ledger::keep`]).

mod attempt;
mod error;
#[cfg(test)]
mod golden;
mod keep;
mod key;
mod ledger;
mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
mod records;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
mod run;
pub mod sql;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "sqlx")]
pub mod sqlx;
mod statements;
mod table;

#[cfg(feature = "blocking")]
pub(crate) use attempt::Start;
pub use attempt::{Done, OnceAttempt};
pub use error::Error;
pub use key::Key;
pub use ledger::{Ledger, Once};
pub use memory::MemoryRecords;
#[cfg(feature = "mysql")]
pub use mysql::MysqlRecords;
#[cfg(feature = "postgres")]
pub use postgres::PostgresRecords;
pub use records::{Begin, Begun, Finished, Record, Records};
#[cfg(feature = "redis")]
pub use redis::RedisRecords;
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteRecords;
#[cfg(feature = "sqlx")]
pub use sqlx::SqlxRecords;
pub use table::{Claimed, OnceClaim, OnceTable, Row, Ticket};
