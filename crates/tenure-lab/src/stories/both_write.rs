//! A scene that two stories share: A and B were both granted the lock, B later, and both write.

use crate::actor::Actor;
use crate::error::Result;
use crate::shop::Sales;
use crate::testbed::{SALE, Testbed};

/// What became of the writes.
pub(super) struct Writes {
    /// Whether B's token is larger than A's.
    pub(super) grows: bool,
    pub(super) a_sold: bool,
    pub(super) b_sold: bool,
    /// Whether B still held the lock when it gave it back.
    pub(super) b_was_in: bool,
    pub(super) sales: Sales,
}

/// A writes, then B. A is told that its lock is lost, and B gives its lock back.
pub(super) fn both_write(testbed: &Testbed, a: &mut Actor, b: &mut Actor) -> Result<Writes> {
    let grows = b.token() > a.token();
    let a_sold = a.sell()?;
    testbed.work(SALE);
    let b_sold = b.sell()?;
    testbed.until("A is told", || Ok(a.was_told()))?;
    let b_was_in = b.give_back()?;
    let sales = testbed.sales()?;
    Ok(Writes { grows, a_sold, b_sold, b_was_in, sales })
}
