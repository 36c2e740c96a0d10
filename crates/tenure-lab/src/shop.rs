//! The shop: a database with so many units of one thing, and a log of all that was granted, sold and refused.
//!
//! A way is judged by this log. Every process writes to it by itself, so its order is the real
//! order: a holder writes its grant before anything else.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use tenure::Token;
use tenure::fence::sql::{Effect, Update};
use tenure::fence::{self, sqlite};

use crate::error::{LabError, Result};

/// What is sold.
pub(crate) const ITEM: &str = "1001";

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE stock (
        id TEXT PRIMARY KEY, units INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0, lease_seq INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE log (
        n INTEGER PRIMARY KEY AUTOINCREMENT, who TEXT NOT NULL, what TEXT NOT NULL, item TEXT NOT NULL, under INTEGER, token INTEGER
    );";

/// A sale is stale if another client was granted the lock after this grant and before this write.
const STALE: &str = "EXISTS (
    SELECT 1 FROM log later
    WHERE later.what = 'granted' AND later.item = sale.item AND later.who <> sale.who AND later.n > sale.under AND later.n < sale.n
)";

/// How many held locks at the same time, at most. Who leaves says so before it gives back.
const MOST_AT_ONCE: &str = "SELECT coalesce(max(inside), 0) FROM (
    SELECT sum(CASE what WHEN 'granted' THEN 1 WHEN 'left' THEN -1 ELSE 0 END) OVER (ORDER BY n) AS inside FROM log
)";

/// One connection to the shop.
#[derive(Debug)]
pub(crate) struct Shop {
    path: PathBuf,
    sql: Connection,
}

/// What a reader sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) units: i64,
    /// How often the row has been written to by writers that compare this number.
    pub(crate) lease: i64,
}

/// A write that says how many are left, and what it shows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sale<'a> {
    pub(crate) who: &'a str,
    pub(crate) item: &'a str,
    pub(crate) left: i64,
    /// The grant that the writer has, if any.
    pub(crate) under: Option<i64>,
    /// With a token the write is fenced.
    pub(crate) token: Option<u64>,
    /// With a lease that was read, the write is compared and set.
    pub(crate) lease: Option<i64>,
}

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Write {
    Accepted {
        stale: bool,
    },
    /// A larger token was here before.
    Refused,
    /// Another write came since the read.
    Overtaken,
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
    pub(crate) fn found(path: &Path, stock: u32) -> Result<Self> {
        let shop = Self::enter(path)?;
        shop.sql.execute_batch(SCHEMA)?;
        shop.sql.execute("INSERT INTO stock (id, units) VALUES (?1, ?2)", params![ITEM, stock])?;
        shop.sql.execute("INSERT INTO stock (id, units) VALUES ('at the start', ?1)", [stock])?;
        Ok(shop)
    }

    /// Another connection to a shop that is open.
    pub(crate) fn enter(path: &Path) -> Result<Self> {
        let sql = Connection::open(path)?;
        sql.busy_timeout(Duration::from_secs(10))?;
        // Nothing here has to survive the machine.
        sql.pragma_update(None, "synchronous", "OFF")?;
        Ok(Self { path: path.to_owned(), sql })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Splits what there is into equal parts; [`part`] has their names.
    pub(crate) fn split(&mut self, parts: u32) -> Result<()> {
        let tx = self.begin()?;
        for n in 0..parts {
            let sql = "INSERT INTO stock (id, units) SELECT ?1, units / ?2 FROM stock WHERE id = ?3";
            tx.execute(sql, params![part(n, parts), parts, ITEM])?;
        }
        tx.execute("DELETE FROM stock WHERE id = ?1", [ITEM])?;
        Ok(tx.commit()?)
    }

    /// Logs a grant of the lock of an item. The number identifies the grant.
    pub(crate) fn granted(&mut self, who: &str, item: &str, token: Option<u64>) -> Result<i64> {
        let tx = self.begin()?;
        note(&tx, "granted", who, item, None, token)?;
        let n = tx.last_insert_rowid();
        tx.commit()?;
        Ok(n)
    }

    /// Logs that a holder is about to give the lock back.
    pub(crate) fn left(&self, who: &str, item: &str) -> Result<()> {
        note(&self.sql, "left", who, item, None, None)
    }

    /// Raises the fence: earlier holders can write no more. A late holder may go on; its write will be refused.
    pub(crate) fn raise(&self, item: &str, token: u64) -> Result<()> {
        written(&self.sql, &Update::of("stock").key("id = ?", [item]).fenced("fence", &Token::new(token))).map(drop)
    }

    /// How many units there are.
    pub(crate) fn look(&self, item: &str) -> Result<Seen> {
        let sql = "SELECT units, lease_seq FROM stock WHERE id = ?1";
        Ok(self.sql.query_row(sql, [item], |row| Ok(Seen { units: row.get(0)?, lease: row.get(1)? }))?)
    }

    /// Sells one: writes what is left.
    pub(crate) fn sell(&mut self, sale: &Sale<'_>) -> Result<Write> {
        let tx = self.begin()?;
        let written = checked(&tx, sale)?;
        let what = if matches!(written, Write::Accepted { .. }) { "sold" } else { "refused" };
        note(&tx, what, sale.who, sale.item, sale.under, sale.token)?;
        let is_stale = format!("SELECT 1 FROM log sale WHERE sale.n = ?1 AND sale.what = 'sold' AND {STALE}");
        let stale = tx.query_row(&is_stale, [tx.last_insert_rowid()], |_| Ok(())).optional()?.is_some();
        tx.commit()?;
        Ok(if stale { Write::Accepted { stale } } else { written })
    }

    pub(crate) fn sales(&self) -> Result<Sales> {
        Ok(Sales {
            stock: self.count("SELECT units FROM stock WHERE id = 'at the start'")?,
            sold: self.count("SELECT COUNT(*) FROM log WHERE what = 'sold'")?,
            stale: self.count(&format!("SELECT COUNT(*) FROM log sale WHERE sale.what = 'sold' AND {STALE}"))?,
            refused: self.count("SELECT COUNT(*) FROM log WHERE what = 'refused'")?,
        })
    }

    /// How many held locks at the same time, at most, as far as they said when they left.
    pub(crate) fn most_at_once(&self) -> Result<u64> {
        self.count(MOST_AT_ONCE)
    }

    fn count(&self, sql: &str) -> Result<u64> {
        Ok(self.sql.query_row(sql, [], |row| row.get::<_, u32>(0)).map(u64::from)?)
    }

    fn begin(&mut self) -> Result<Transaction<'_>> {
        Ok(self.sql.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }
}

/// The name of one of so many parts of what is sold.
pub(crate) fn part(n: u32, of: u32) -> String {
    if of > 1 { format!("{ITEM}#{n}") } else { ITEM.to_owned() }
}

/// The write, and in the same statement the check of what is shown.
fn checked(sql: &Connection, sale: &Sale<'_>) -> Result<Write> {
    let token = sale.token.map(Token::new);
    let mut update = Update::of("stock").key("id = ?", [sale.item]).set("units = ?", [sale.left]);
    if let Some(token) = &token {
        update = update.fenced("fence", token);
    }
    if let Some(read) = sale.lease {
        update = update.lease("lease_seq", read);
    }
    written(sql, &update)
}

fn written(sql: &Connection, update: &Update<'_>) -> Result<Write> {
    match sqlite::update(sql, update) {
        Ok(Effect::Written) => Ok(Write::Accepted { stale: false }),
        Err(fence::Error::Stale(_)) => Ok(Write::Refused),
        Err(fence::Error::Overtaken(_)) => Ok(Write::Overtaken),
        Ok(effect) => Err(LabError::new(format!("the shop: {effect:?}"))),
        Err(error) => Err(LabError::new(format!("the shop: {error}"))),
    }
}

fn note(sql: &Connection, what: &str, who: &str, item: &str, under: Option<i64>, token: Option<u64>) -> Result<()> {
    let token = token.map(signed).transpose()?;
    let insert = "INSERT INTO log (what, who, item, under, token) VALUES (?1, ?2, ?3, ?4, ?5)";
    sql.execute(insert, params![what, who, item, under, token])?;
    Ok(())
}

/// SQLite has no larger numbers.
fn signed(token: u64) -> Result<i64> {
    i64::try_from(token).map_err(LabError::while_doing("writing a token to the shop"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shop() -> Result<(tempfile::TempDir, Shop)> {
        let dir = tempfile::tempdir()?;
        let shop = Shop::found(&dir.path().join("shop.db"), 1)?;
        Ok((dir, shop))
    }

    fn last_one(who: &str, under: i64) -> Sale<'_> {
        Sale { who, item: ITEM, left: 0, under: Some(under), token: None, lease: None }
    }

    fn fenced(who: &str, under: i64, token: u64) -> Sale<'_> {
        Sale { token: Some(token), ..last_one(who, under) }
    }

    #[test]
    fn a_write_after_the_grant_of_another_is_stale() -> Result<()> {
        let (_dir, mut shop) = shop()?;
        let a = shop.granted("A", ITEM, None)?;
        assert_eq!(shop.sell(&last_one("A", a))?, Write::Accepted { stale: false });
        shop.granted("C", "something else", None)?;
        assert_eq!(shop.sell(&last_one("A", a))?, Write::Accepted { stale: false });
        let b = shop.granted("B", ITEM, None)?;
        assert_eq!(shop.sell(&last_one("A", a))?, Write::Accepted { stale: true });
        assert_eq!(shop.sell(&last_one("B", b))?, Write::Accepted { stale: false });
        let sales = shop.sales()?;
        assert_eq!((sales, sales.oversold()), (Sales { stock: 1, sold: 4, stale: 1, refused: 0 }, 3));
        Ok(())
    }

    #[test]
    fn a_fence_refuses_a_smaller_token_once_a_larger_one_has_written() -> Result<()> {
        let (_dir, mut shop) = shop()?;
        let a = shop.granted("A", ITEM, Some(7))?;
        shop.raise(ITEM, 7)?;
        let b = shop.granted("B", ITEM, Some(8))?;
        assert_eq!(shop.sell(&fenced("B", b, 8))?, Write::Accepted { stale: false });
        assert_eq!(shop.sell(&fenced("A", a, 7))?, Write::Refused);
        assert_eq!(shop.sales()?, Sales { stock: 1, sold: 1, stale: 0, refused: 1 });
        let c = shop.granted("C", ITEM, Some(9))?;
        shop.raise(ITEM, 9)?;
        assert_eq!(shop.sell(&fenced("B", b, 8))?, Write::Refused, "C has looked");
        assert_eq!(shop.sell(&fenced("C", c, 9))?, Write::Accepted { stale: false });
        Ok(())
    }

    #[test]
    fn of_two_who_have_read_the_same_lease_one_can_write() -> Result<()> {
        let (_dir, mut shop) = shop()?;
        let a = shop.granted("A", ITEM, Some(7))?;
        let Seen { units, lease } = shop.look(ITEM)?;
        let sale = Sale { lease: Some(lease), left: units - 1, ..fenced("A", a, 7) };
        assert_eq!(shop.sell(&sale)?, Write::Accepted { stale: false });
        assert_eq!(shop.sell(&sale)?, Write::Overtaken);
        assert_eq!(shop.look(ITEM)?, Seen { units: 0, lease: lease + 1 });
        Ok(())
    }

    #[test]
    fn who_is_in_at_the_same_time_is_counted_over_all_parts() -> Result<()> {
        let (_dir, mut shop) = shop()?;
        shop.split(2)?;
        assert_eq!(shop.look(&part(1, 2))?.units, 0, "half of one");
        assert_eq!(shop.most_at_once()?, 0);
        for (who, n) in [("A", 0), ("B", 1)] {
            shop.granted(who, &part(n, 2), None)?;
        }
        shop.left("A", &part(0, 2))?;
        shop.granted("C", &part(0, 2), None)?;
        assert_eq!(shop.most_at_once()?, 2);
        Ok(())
    }
}
