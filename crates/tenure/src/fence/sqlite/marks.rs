//! Marks in a file.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;

use super::file::File;
use super::raise;
use crate::error::Result;
use crate::fence::marks::Marks;
use crate::fence::sql::{Ddl, Dialect, FenceTable, token};
use crate::name::Token;

/// [`Marks`] in a table of a SQLite file, which is made if it is missing. Several processes may share it.
#[derive(Debug)]
pub struct SqliteMarks {
    table: FenceTable,
    file: Arc<File>,
}

impl SqliteMarks {
    /// In that table of that file.
    pub async fn open(path: impl Into<PathBuf>, table: FenceTable) -> Result<Self> {
        let file = File::open(path.into(), Ddl(Dialect::Sqlite).table(&table)).await?;
        Ok(Self { table, file })
    }
}

#[async_trait]
impl Marks for SqliteMarks {
    async fn raise(&self, resource: &str, seen: Token) -> Result<Token> {
        let statements = self.table.raise(Dialect::Sqlite, resource, seen)?;
        self.file.transact("raising a mark", move |tx| raise(tx, &statements)).await.map(token)
    }
}
