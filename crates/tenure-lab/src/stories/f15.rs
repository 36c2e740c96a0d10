//! Two holders whose tokens grow as they should, and a fence that is asked too late.

use std::time::Duration;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::{COUNTER, LOCK, setnx_counted, tenure};
use crate::protocol::{Check, LockSpec};
use crate::redis_server::Setup;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};
use crate::timeline::Moment;

/// Longer than the story, so that no renewal tells of the loss.
const LEASE: Duration = Duration::from_secs(30);
/// With tracking the server would tell A at once. This is about a holder that has not heard.
const UNTOLD: &str = "wake=pubsub";
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) static STORY: Story = Story {
    id: "F15",
    title: "two holders with growing tokens both write",
    lesson: "Raise the fence before you read, or compare and set what you have read: a check at the write alone is too late.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "the token is checked when it is written", play: naive },
        Way { kind: Kind::Usual, how: "compare and set on a lease_seq column", play: compare_and_set },
        Way { kind: Kind::Tenure, how: "the fence is raised before the read", play: raised },
        Way { kind: Kind::Tenure, how: "the fence is raised, and the lease compared", play: raised_and_compared },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let ([mut a, mut b], both) = both_have_looked(testbed, Check::AtTheWrite, |port| setnx_counted(port, LEASE, COUNTER))?;
    let (a_sold, b_sold) = (a.sell()?, b.sell()?);
    let (first, second) = (a.token().unwrap_or_default(), b.token().unwrap_or_default());
    let sales = testbed.sales()?;
    Ok(Outcome::new(format!("token {first} writes, then token {second}: in order, and both have sold the same unit"))
        .claim("both hold the lock with growing tokens, and see the last unit", both)
        .claim("the fence lets both through, and the last unit is sold twice", a_sold && b_sold && sales.oversold() == 1))
}

fn compare_and_set(testbed: &Testbed) -> Result<Outcome> {
    let ([mut a, mut b], both) = both_have_looked(testbed, Check::Lease, |port| setnx_counted(port, LEASE, COUNTER))?;
    let (a_sold, b_sold) = (a.sell()?, b.sell()?);
    let sales = testbed.sales()?;
    Ok(Outcome::new("of two who have read the same, the first to write wins: that is enough here, whoever it is")
        .claim("both hold the lock with growing tokens, and see the last unit", both)
        .claim("A sells, and B is refused", a_sold && !b_sold)
        .claim("the unit is sold once", (sales.sold, sales.refused) == (1, 1)))
}

fn raised(testbed: &Testbed) -> Result<Outcome> {
    let ([mut a, mut b], both) = both_have_looked(testbed, Check::BeforeTheRead, |server| tenure(server.url(UNTOLD), LEASE))?;
    let (a_sold, b_sold) = (a.sell()?, b.sell()?);
    let sales = testbed.sales()?;
    Ok(Outcome::new("from B's look on, A is refused: what B has seen is still so when it writes")
        .claim("both hold the lock with growing tokens, and see the last unit", both)
        .claim("A is refused though nobody has written since it looked, and B sells", !a_sold && b_sold)
        .claim("the unit is sold once", (sales.sold, sales.refused) == (1, 1)))
}

fn raised_and_compared(testbed: &Testbed) -> Result<Outcome> {
    let check = Check::BeforeTheReadAndLease;
    let ([mut a, mut b], both) = both_have_looked(testbed, check, |server| tenure(server.url(UNTOLD), LEASE))?;
    let (a_sold, b_sold) = (a.sell()?, b.sell()?);
    testbed.work(SALE);
    b.did("has another step that saw the same unit");
    let again = b.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new("A is refused by the fence; and of two steps of B that have read the same, one wins")
        .claim("both hold the lock with growing tokens, and see the last unit", both)
        .claim("A is refused, and B sells", !a_sold && b_sold)
        .claim("the other step of B has the same token, and is refused by the lease", !again && sales.refused == 2)
        .claim("the unit is sold once", sales.sold == 1))
}

/// The server forgets A's lock and not the tokens; B is granted it, and both have looked at the stock.
fn both_have_looked(
    testbed: &Testbed,
    check: Check,
    lock: impl FnOnce(&crate::server::Server) -> LockSpec,
) -> Result<([Actor; 2], bool)> {
    let server = testbed.server_with(Setup::default())?;
    let lane = testbed.watch(&server, "Redis")?;
    let lock = lock(&server);
    let [mut a, mut b] = testbed.actors(["A", "B"], &lock)?;
    for actor in [&mut a, &mut b] {
        actor.check(check)?;
    }
    let first = a.take(&lock, PATIENCE)?;
    let seen_by_a = a.look()?;
    testbed.work(SALE);
    server.ask::<u64>(&["DEL", LOCK])?;
    testbed.mark(lane, Moment::Did, "forgets the lock: somebody has deleted it by hand");
    let second = b.take(&lock, PATIENCE)?;
    let seen = [seen_by_a, b.look()?];
    testbed.work(SALE);
    let both = first && second && seen == [1, 1] && b.token() > a.token() && a.is_held()?;
    Ok(([a, b], both))
}
