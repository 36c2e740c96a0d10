//! Fences in SQL, as text and binds that fit any driver.
//!
//! Three forms, from the simplest to the strictest:
//!
//! - **A table of marks** ([`FenceTable`]): one row per resource, raised and compared in the transaction that writes. Whatever the
//!   transaction does after it is fenced: inserts, deletes, several tables.
//! - **A column** ([`Update::fenced`]): the row that is written keeps the largest token, and the write itself compares.
//! - **A lease column** ([`Update::lease`]): compare-and-set on a number that the row keeps. Of two writers that have read the same number
//!   one wins, also if both hold valid tokens.
//!
//! ```
//! use tenure::Token;
//! use tenure::fence::sql::{Dialect, Update};
//!
//! let sell = Update::of("stock").set("units = units - ?", [1]).key("id = ?", [1001]).only_if("units >= ?", [1]);
//! let write = sell.fenced("fence", &Token::new(7)).write(Dialect::Postgres)?;
//! assert_eq!(
//!     write.text,
//!     "UPDATE \"stock\" SET units = units - $1, \"fence\" = $2 WHERE (id = $3) AND (units >= $4) AND coalesce(\"fence\", 0) <= $5",
//! );
//! assert_eq!(write.binds.len(), 5);
//! # Ok::<(), tenure::Error>(())
//! ```
//!
//! # Names
//! Tables and columns are named as one writes them in SQL: `stock`, `shop.stock`, or in quotes, `"Group of"`, whichever kind: `` `…` ``
//! is the same. They are written in the quotes of the dialect, so that no part of a name is SQL, and words of SQL
//! (`order`) are names too. A name without quotes means the table that it would mean in a statement: PostgreSQL folds it to lower case.

mod ddl;
#[cfg(test)]
mod golden;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite", feature = "sqlx"))]
pub(super) mod run;
mod table;
mod update;

pub use table::{FenceTable, SqlMarks};
pub use update::{Effect, Probe, Update};

pub use crate::sql::{Binds, Columns, Ddl, Dialect, Driver, Operation, Statement, Value};
