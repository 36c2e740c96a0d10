//! Selling: a lock per item (or per part of one that many want), a fence on its rows, a record per order.

use std::time::{Duration, Instant};

use deadpool_postgres::{Manager, Pool};
use serde::{Deserialize, Serialize};
use tenure::fence::postgres as fence;
use tenure::fence::sql::{Ddl, Dialect, Effect, Update, Value};
use tenure::once::{Claimed, OnceTable, postgres as once};
use tenure::{Guard, Locker};
use tokio_postgres::NoTls;

/// How long a customer waits for others.
const PATIENCE: Duration = Duration::from_secs(4);

/// What a customer wants. The same id is the same order, however often it is sent.
#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    id: String,
    item: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Receipt {
    order: String,
    item: String,
    segment: i32,
    token: String,
}

#[derive(Debug)]
pub(crate) enum Refused {
    SoldOut,
    /// Nothing was sold, or it is not known: asking again is safe, because an order is sold once.
    TryAgain(String),
}

/// Lost locks, late writes, a database that is away: whoever asks again will get an answer.
impl<E: std::error::Error> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::TryAgain(error.to_string())
    }
}

pub(crate) struct Shop {
    locker: Locker,
    database: Pool,
    orders: OnceTable,
    /// Off only to see what happens then.
    fenced: bool,
}

impl Shop {
    pub(crate) async fn open(database: &str, locks: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let database = Pool::builder(Manager::new(database.parse()?, NoTls)).max_size(16).build()?;
        let orders = OnceTable::default();
        let tables = format!("{} {}", include_str!("../schema.sql"), Ddl(Dialect::Postgres).once(&orders));
        let locker = Locker::connect(locks).await?;
        // Instances start at the same time, and PostgreSQL does not like two to create the same table.
        let guard = locker.mutex("shop:tables").lock().await?;
        database.get().await?.batch_execute(&tables).await?;
        guard.release().await?;
        Ok(Self { locker, database, orders, fenced: std::env::var_os("SHOP_WITHOUT_FENCE").is_none() })
    }

    /// Sells one unit, once per order.
    pub(crate) async fn sell(&self, order: &Order) -> Result<Receipt, Refused> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let (segment, guard) = match self.lock(&order.item, deadline).await? {
                Some(locked) => locked,
                // It may be sold out because this very order had the last one.
                None => return self.sold_before(order).await?.ok_or(Refused::SoldOut),
            };
            // Not one step more is taken when the lock is lost.
            let sold = guard.run(self.sell_from(segment, order, &guard)).await??;
            guard.release().await?;
            if let Some(receipt) = sold {
                return Ok(receipt);
            }
            // Others have emptied this part of it: on to the next.
        }
    }

    /// `None`: this part of the stock is sold out.
    async fn sell_from(&self, segment: i32, order: &Order, guard: &Guard) -> Result<Option<Receipt>, Refused> {
        let mut database = self.database.get().await?;
        let row = || {
            let row = Update::of("stock").key("item = ? AND segment = ?", [Value::from(&*order.item), segment.into()]);
            if self.fenced { row.fenced("fence", guard) } else { row }
        };
        // Raises the fence before the stock is read: from here on nobody with an older token can write.
        if self.fenced && fence::update(&**database, &row()).await? != Effect::Written {
            return Ok(None);
        }
        let read = "SELECT units FROM stock WHERE item = $1 AND segment = $2";
        let units: i32 = database.query_one(read, &[&order.item, &segment]).await?.get(0);
        if units == 0 {
            return Ok(None);
        }
        pay(order).await;

        // The order's record, the stock and the sale: all of it or nothing.
        let transaction = database.transaction().await?;
        let ticket = match once::claim(&transaction, &self.orders.claim(&order.id)?).await? {
            Claimed::Done(before) => return Ok(Some(before.value)),
            Claimed::Yours(ticket) => ticket,
        };
        fence::update(&*transaction, &row().set("units = ?", [units - 1])).await?;
        let receipt = Receipt { order: order.id.clone(), item: order.item.clone(), segment, token: guard.token().to_string() };
        let sale = "INSERT INTO sales (order_id, item, segment, token) VALUES ($1, $2, $3, $4)";
        transaction.execute(sale, &[&order.id, &order.item, &segment, &receipt.token]).await?;
        let receipt = once::finish(&transaction, ticket, receipt).await?.value;
        transaction.commit().await?;
        Ok(Some(receipt))
    }

    /// The lock of an item, or of a part of it that has something left. `None`: it is sold out.
    async fn lock(&self, item: &str, deadline: Instant) -> Result<Option<(i32, Guard)>, Refused> {
        let database = self.database.get().await?;
        let read = "SELECT segment, units FROM stock WHERE item = $1 ORDER BY segment";
        let segments: Vec<(i32, i32)> =
            database.query(read, &[&item]).await?.iter().map(|row| (row.get(0), row.get(1))).collect();
        // Not kept while this waits: others need it to sell.
        drop(database);
        let filled: Vec<i32> = segments.iter().filter(|(_, units)| *units > 0).map(|(segment, _)| *segment).collect();
        let (name, wait) = (format!("stock:{item}"), deadline.saturating_duration_since(Instant::now()));
        let parts = self.locker.striped(&name, u32::try_from(segments.len())?);
        let locked = match (&*segments, &*filled) {
            (_, []) => return Ok(None),
            ([_], [segment]) => self.locker.mutex(name).try_lock_for(wait).await?.map(|guard| (*segment, guard)),
            (_, [segment]) => {
                let part = parts.stripe(u32::try_from(*segment)?).ok_or_else(|| Refused::TryAgain("no such part".to_owned()))?;
                part.try_lock_for(wait).await?.map(|guard| (*segment, guard))
            }
            // Any that is free: five can sell at the same time.
            _ => match parts.try_lock_any_for(wait).await? {
                Some((segment, guard)) => Some((i32::try_from(segment)?, guard)),
                None => None,
            },
        };
        locked.map(Some).ok_or_else(|| Refused::TryAgain("others want it too".to_owned()))
    }

    async fn sold_before(&self, order: &Order) -> Result<Option<Receipt>, Refused> {
        let mut database = self.database.get().await?;
        let transaction = database.transaction().await?;
        // Rolled back: a claim that is not committed is none.
        Ok(match once::claim(&transaction, &self.orders.claim(&order.id)?).await? {
            Claimed::Done(before) => Some(before.value),
            Claimed::Yours(_) => None,
        })
    }

    pub(crate) async fn stock(&self, item: &str) -> Result<i64, Box<dyn std::error::Error>> {
        let count = "SELECT coalesce(sum(units), 0)::int8 FROM stock WHERE item = $1";
        Ok(self.database.get().await?.query_one(count, &[&item]).await?.get(0))
    }

    pub(crate) async fn close(&self) -> tenure::Result<()> {
        self.locker.close().await
    }
}

/// Stands for the payment provider: the slow part, and the reason for a lock. It is told the order's id, so that it charges once; an order
/// that was paid and cannot be sold any more is one to refund.
async fn pay(_order: &Order) {
    tokio::time::sleep(Duration::from_millis(1)).await;
}
