//! The shop: a database with so many units of one thing, and a log of all that was granted, sold and refused.
//!
//! The log is the truth from which a way is judged. Every process writes to it by itself, so its order is that of what
//! really happened: whoever is granted the lock notes that before it does anything else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use tenure::Token;
use tenure::fence::sql::{Effect, Update};
use tenure::fence::sqlite;

use super::upset::{Played, Upset};

/// What is sold.
pub(crate) const ITEM: &str = "1001";

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE stock (id TEXT PRIMARY KEY, units INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE log (
        n INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT NOT NULL, what TEXT NOT NULL, under INTEGER, token INTEGER
    );";

/// A sale is stale if somebody else was granted the lock after this one was, and before this write.
const STALE: &str = "EXISTS (
    SELECT 1 FROM log later WHERE later.what = 'granted' AND later.who <> sale.who AND later.n > sale.under AND later.n < sale.n
)";

/// One connection to the shop.
#[derive(Debug)]
pub(crate) struct Shop {
    path: PathBuf,
    sql: Connection,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted {
        stale: bool,
    },
    /// Somebody with a larger token has been here.
    Refused,
}

/// What the log says at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sales {
    pub(crate) stock: u64,
    pub(crate) sold: u64,
    pub(crate) stale: u64,
    pub(crate) refused: u64,
}

impl Sales {
    /// Units that were sold and are not there.
    pub(crate) fn oversold(self) -> u64 {
        self.sold.saturating_sub(self.stock)
    }
}

impl Shop {
    /// Opens a new shop with so many units.
    pub(crate) fn found(path: &Path, stock: u32) -> Played<Self> {
        let shop = Self::enter(path)?;
        shop.sql.execute_batch(SCHEMA)?;
        shop.sql.execute("INSERT INTO stock (id, units) VALUES (?1, ?2)", params![ITEM, stock])?;
        shop.sql.execute("INSERT INTO stock (id, units) VALUES ('at the start', ?1)", [stock])?;
        Ok(shop)
    }

    /// Another connection to a shop that is open.
    pub(crate) fn enter(path: &Path) -> Played<Self> {
        let sql = Connection::open(path)?;
        sql.busy_timeout(Duration::from_secs(10))?;
        // Nothing here has to survive the machine.
        sql.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self { path: path.to_owned(), sql })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Notes that somebody was granted the lock. The number is the name of this grant.
    pub(crate) fn granted(&mut self, who: &str, token: Option<u64>) -> Played<i64> {
        let tx = self.begin()?;
        note(&tx, who, "granted", None, token)?;
        let n = tx.last_insert_rowid();
        tx.commit()?;
        Ok(n)
    }

    /// How many units there are. With a token the fence is raised first: who was here before can write no more.
    pub(crate) fn look(&self, token: Option<u64>) -> Played<i64> {
        if let Some(token) = token {
            // One who is too late may look all the same; its write will be refused.
            fenced(&self.sql, None, token)?;
        }
        Ok(self.sql.query_row("SELECT units FROM stock WHERE id = ?1", [ITEM], |row| row.get(0))?)
    }

    /// Sells one: writes what is left. `under` is the grant that the writer has, if any; with a token the write is fenced.
    pub(crate) fn sell(&mut self, who: &str, left: i64, under: Option<i64>, token: Option<u64>) -> Played<Write> {
        let tx = self.begin()?;
        let accepted = match token {
            Some(token) => fenced(&tx, Some(left), token)?,
            None => tx.execute("UPDATE stock SET units = ?1 WHERE id = ?2", params![left, ITEM])? == 1,
        };
        note(&tx, who, if accepted { "sold" } else { "refused" }, under, token)?;
        let is_stale = format!("SELECT 1 FROM log sale WHERE sale.n = ?1 AND {STALE}");
        let stale = tx.query_row(&is_stale, [tx.last_insert_rowid()], |_| Ok(())).optional()?.is_some();
        tx.commit()?;
        Ok(if accepted { Write::Accepted { stale } } else { Write::Refused })
    }

    pub(crate) fn sales(&self) -> Played<Sales> {
        let count = |sql: &str| self.sql.query_row(sql, [], |row| row.get::<_, u32>(0)).map(u64::from);
        Ok(Sales {
            stock: count("SELECT units FROM stock WHERE id = 'at the start'")?,
            sold: count("SELECT COUNT(*) FROM log WHERE what = 'sold'")?,
            stale: count(&format!("SELECT COUNT(*) FROM log sale WHERE sale.what = 'sold' AND {STALE}"))?,
            refused: count("SELECT COUNT(*) FROM log WHERE what = 'refused'")?,
        })
    }

    fn begin(&mut self) -> Played<Transaction<'_>> {
        Ok(self.sql.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }
}

/// The write that checks the token: check and write are one statement. Without units it only raises the fence.
fn fenced(sql: &Connection, left: Option<i64>, token: u64) -> Played<bool> {
    let token = Token::new(token);
    let mut update = Update::of("stock").key("id = ?", [ITEM]).fenced("fence", &token);
    if let Some(left) = left {
        update = update.set("units = ?", [left]);
    }
    match sqlite::update(sql, &update) {
        Ok(effect) => Ok(effect == Effect::Written),
        Err(error) if error.stale().is_some() => Ok(false),
        Err(error) => Err(Upset::new(format!("the shop: {error}"))),
    }
}

fn note(tx: &Transaction<'_>, who: &str, what: &str, under: Option<i64>, token: Option<u64>) -> Played<()> {
    let token = token.map(signed).transpose()?;
    tx.execute("INSERT INTO log (who, what, under, token) VALUES (?1, ?2, ?3, ?4)", params![who, what, under, token])?;
    Ok(())
}

/// SQLite has no larger numbers.
fn signed(token: u64) -> Played<i64> {
    i64::try_from(token).map_err(Upset::while_doing("writing a token to the shop"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Played<(tempfile::TempDir, Shop)> {
        let dir = tempfile::tempdir()?;
        let shop = Shop::found(&dir.path().join("shop.db"), 1)?;
        Ok((dir, shop))
    }

    #[test]
    fn a_write_after_the_grant_of_another_is_stale() -> Played<()> {
        let (_dir, mut shop) = shop()?;
        let a = Some(shop.granted("A", None)?);
        assert_eq!(shop.sell("A", 0, a, None)?, Write::Accepted { stale: false });
        let b = Some(shop.granted("B", None)?);
        assert_eq!(shop.sell("A", 0, a, None)?, Write::Accepted { stale: true });
        assert_eq!(shop.sell("B", 0, b, None)?, Write::Accepted { stale: false });
        let sales = shop.sales()?;
        assert_eq!((sales, sales.oversold()), (Sales { stock: 1, sold: 3, stale: 1, refused: 0 }, 2));
        Ok(())
    }

    #[test]
    fn a_fence_refuses_a_smaller_token_once_a_larger_one_has_written() -> Played<()> {
        let (_dir, mut shop) = shop()?;
        let a = Some(shop.granted("A", Some(7))?);
        assert_eq!(shop.look(Some(7))?, 1);
        let b = Some(shop.granted("B", Some(8))?);
        assert_eq!(shop.sell("B", 0, b, Some(8))?, Write::Accepted { stale: false });
        assert_eq!(shop.sell("A", 0, a, Some(7))?, Write::Refused);
        assert_eq!(shop.sales()?, Sales { stock: 1, sold: 1, stale: 0, refused: 1 });
        let c = Some(shop.granted("C", Some(9))?);
        assert_eq!(shop.look(Some(9))?, 0);
        assert_eq!(shop.sell("B", 0, b, Some(8))?, Write::Refused, "C has looked");
        assert_eq!(shop.sell("C", 0, c, Some(9))?, Write::Accepted { stale: false });
        Ok(())
    }
}
