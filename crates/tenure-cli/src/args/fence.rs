//! `tenure fence`.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use tenure::fence::sql::{Ddl, Dialect, FenceTable};
use tenure::once::OnceTable;

const DDL_NOTES: &str = "\
Without --table, --column, --lease and --once, the table of marks is defined under its usual name, tenure_fences: one row per \
resource, with the largest token that has written to it.

Examples:
  tenure fence ddl --dialect postgres | psql -v ON_ERROR_STOP=1 shop
  tenure fence ddl --dialect mysql --table ops.fences | mysql shop
  tenure fence ddl --dialect sqlite --column stock.fence --lease stock.version | sqlite3 shop.db
  tenure fence ddl --dialect postgres --once | psql -v ON_ERROR_STOP=1 shop";

#[derive(Subcommand)]
pub(crate) enum FenceCommand {
    /// Print the tables and columns that fences in a database need, for its own client to run.
    #[command(after_long_help = DDL_NOTES)]
    Ddl(DdlArgs),
}

#[derive(Args)]
pub(crate) struct DdlArgs {
    /// Whose SQL; mysql is also for MariaDB.
    #[arg(long, value_parser = dialect())]
    pub(crate) dialect: Dialect,

    /// Define a table of marks under this name, with a schema before it or without.
    #[arg(long, value_name = "NAME", value_parser = FenceTable::named)]
    pub(crate) table: Option<FenceTable>,

    /// Add a column for the largest token of each row to a table that exists; may be repeated.
    #[arg(long, value_name = "TABLE.COLUMN", value_parser = Column::new)]
    pub(crate) column: Vec<Column>,

    /// Add a column for the lease of each row, which changes with every write; may be repeated.
    #[arg(long, value_name = "TABLE.COLUMN", value_parser = Column::new)]
    pub(crate) lease: Vec<Column>,

    /// Define a table for the records of work that is done once, under this name or as tenure_once.
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "tenure_once", value_parser = OnceTable::named)]
    pub(crate) once: Option<OnceTable>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) table: String,
    pub(crate) column: String,
}

impl Column {
    /// The last dot that leaves two names parts them; one in quotes does not.
    fn new(text: &str) -> Result<Self, String> {
        let parts = text.rmatch_indices('.').map(|(dot, _)| (&text[..dot], &text[dot + 1..]));
        let named = |(table, column): &(&str, &str)| Ddl(Dialect::Postgres).column(table, column).is_ok();
        let (table, column) = parts.into_iter().find(named).ok_or_else(|| {
            "it names no column of a table; allowed: stock.fence, shop.stock.fence, or with names in the dialect's quotes"
                .to_owned()
        })?;
        Ok(Self { table: table.to_owned(), column: column.to_owned() })
    }
}

fn dialect() -> impl TypedValueParser<Value = Dialect> {
    let names = Dialect::ALL.map(|dialect| {
        let name = PossibleValue::new(dialect.name());
        match dialect {
            Dialect::Postgres => name.alias("postgresql"),
            Dialect::Mysql => name.alias("mariadb"),
            Dialect::Sqlite => name,
        }
    });
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Dialect>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_named_with_its_table() {
        let column = |text: &str| Column::new(text).map(|Column { table, column }| (table, column));
        let named = |table: &str, column: &str| Ok((table.to_owned(), column.to_owned()));
        assert_eq!(column("stock.fence"), named("stock", "fence"));
        assert_eq!(column("shop.stock.fence"), named("shop.stock", "fence"));
        assert_eq!(column("\"a.b\".\"c.d\""), named("\"a.b\"", "\"c.d\""));
        for wrong in ["", "fence", ".fence", "stock.", "a b.c", "stock.fence;", "\"a.b\""] {
            assert!(column(wrong).is_err(), "{wrong}");
        }
    }
}
