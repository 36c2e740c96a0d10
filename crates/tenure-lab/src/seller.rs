//! The sales of an actor: it reads the stock, and later writes one less than it has read, with a fence or without.

use tenure::{Guard, Lost};
use tokio::runtime::Runtime;
use tokio::sync::oneshot::{Sender, channel};
use tokio::task::JoinHandle;

use crate::error::{LabError, Result};
use crate::protocol::{Check, Reply};
use crate::shop::{ITEM, Sale, Seen, Shop, Write};

/// What an actor has to show for what it took last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grant {
    /// Its number in the shop's log.
    pub(crate) n: Option<i64>,
    pub(crate) token: Option<u64>,
    /// How the holders of such a lock let the shop check their writes.
    pub(crate) check: Check,
}

pub(crate) struct Seller {
    name: String,
    pub(crate) shop: Shop,
    /// Instead of what goes with the lock.
    pub(crate) check: Option<Check>,
    seen: Option<Seen>,
    begun: Option<Begun>,
}

/// A sale that runs under a guard and waits for the word to write.
struct Begun {
    write: Sender<()>,
    sale: JoinHandle<Result<Result<Write>, Lost>>,
}

impl Seller {
    pub(crate) fn new(name: &str, shop: Shop) -> Self {
        Self { name: name.to_owned(), shop, check: None, seen: None, begun: None }
    }

    pub(crate) fn look(&mut self, grant: Grant) -> Result<Reply> {
        let seen = look(&self.shop, grant, self.check.unwrap_or(grant.check))?;
        self.seen = Some(seen);
        Ok(Reply::Units(seen.units))
    }

    pub(crate) fn sell(&mut self, grant: Grant) -> Result<Reply> {
        let seen = self.seen.ok_or_else(|| LabError::new(format!("{} has not looked what there is", self.name)))?;
        sell(&mut self.shop, &self.name, seen, grant, self.check.unwrap_or(grant.check)).map(answer)
    }

    /// Looks, and sells when it is told to: all of it under the guard, as `Guard::run` has it.
    pub(crate) fn begin(&mut self, runtime: &Runtime, guard: Guard, grant: Grant) -> Result<Reply> {
        let (name, mut shop) = (self.name.clone(), Shop::enter(self.shop.path())?);
        let (seen_by_it, seen) = channel();
        let (write, told) = channel();
        let check = self.check.unwrap_or(grant.check);
        let sale = runtime.spawn(async move {
            let work = async {
                let seen = look(&shop, grant, check)?;
                let _heard = seen_by_it.send(seen.units);
                told.await.map_err(LabError::while_doing("waiting for the word to write"))?;
                sell(&mut shop, &name, seen, grant, check)
            };
            guard.run(work).await
        });
        let units = runtime.block_on(seen).map_err(LabError::while_doing("looking under a guard"))?;
        self.begun = Some(Begun { write, sale });
        Ok(Reply::Units(units))
    }

    /// Tells the sale to write, and says what has become of it.
    pub(crate) fn end(&mut self, runtime: &Runtime) -> Result<Reply> {
        let Begun { write, sale } = self.begun.take().ok_or_else(|| LabError::new("no sale has begun"))?;
        // The receiver is gone if the guard has ended the sale already.
        let _heard = write.send(());
        match runtime.block_on(sale).map_err(LabError::while_doing("selling under a guard"))? {
            Ok(written) => written.map(answer),
            Err(lost) => Ok(Reply::Stopped(lost.reason.to_string())),
        }
    }
}

fn look(shop: &Shop, grant: Grant, check: Check) -> Result<Seen> {
    if let (Some(token), Check::BeforeTheRead | Check::BeforeTheReadAndLease) = (grant.token, check) {
        shop.raise(ITEM, token)?;
    }
    shop.look(ITEM)
}

fn sell(shop: &mut Shop, who: &str, seen: Seen, grant: Grant, check: Check) -> Result<Write> {
    let token = grant.token.filter(|_| !matches!(check, Check::Nothing | Check::Lease));
    let lease = matches!(check, Check::Lease | Check::BeforeTheReadAndLease).then_some(seen.lease);
    shop.sell(&Sale { who, item: ITEM, left: seen.units - 1, under: grant.n, token, lease })
}

fn answer(written: Write) -> Reply {
    match written {
        Write::Accepted { stale } => Reply::Sold { stale },
        Write::Refused => Reply::Refused,
        Write::Overtaken => Reply::Overtaken,
    }
}
