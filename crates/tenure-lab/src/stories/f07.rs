//! A function that holds the lock calls another one that takes it too.

use std::time::Duration;

use crate::error::Result;
use crate::locks::{LOCK, tenure};
use crate::protocol::Value;
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::{SALE, Testbed};

const LEASE: Duration = Duration::from_secs(10);
const LEASE_MILLIS: &str = "10000";
const PATIENCE: Duration = Duration::from_secs(1);

/// Counts how often an owner has entered; nil says that it has.
const ENTER: &str = "
    if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
        redis.call('hincrby', KEYS[1], ARGV[1], 1)
        redis.call('pexpire', KEYS[1], ARGV[2])
        return nil
    end
    return redis.call('pttl', KEYS[1])";
/// Counts down, and deletes at zero.
const LEAVE: &str = "
    if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return nil end
    local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
    if left == 0 then redis.call('del', KEYS[1]) end
    return left";

pub(crate) static STORY: Story = Story {
    id: "F7",
    title: "a nested call waits for its own lock",
    lesson: "A lock must know its owner: who has it may enter again, and it is free when the outermost is done.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX in each of the two functions", play: naive },
        Way { kind: Kind::Usual, how: "a hash of owner and count, kept by scripts", play: by_counting },
        Way { kind: Kind::Tenure, how: "Mutex with an Owner", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let mut a = testbed.actor("A")?;
    let set = ["SET", LOCK, "A", "NX", "PX", LEASE_MILLIS];
    let outer = a.redis(&server, &set)?.is_yes();
    a.granted()?;
    a.did("calls a function that takes the same lock");
    let inner = a.insist(Duration::from_millis(50), PATIENCE, |a| Ok(a.redis_quietly(&server, &set)?.is_yes()))?;
    Ok(Outcome::new("A waits for itself, for as long as it is willing to")
        .claim("the outer call has the lock, and the inner one waits for it in vain", outer && !inner)
        .claim("nothing is sold", testbed.sales()?.sold == 0))
}

fn by_counting(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let mut a = testbed.actor("A")?;
    let mut entered = true;
    for _ in ["outer", "inner"] {
        let answer = a.redis_quietly(&server, &["EVAL", ENTER, "1", LOCK, "A:1", LEASE_MILLIS])?;
        entered &= answer == Value::Nil;
        a.granted()?;
    }
    a.look()?;
    testbed.work(SALE);
    a.sell()?;
    let mut left = Vec::new();
    for _ in ["inner", "outer"] {
        testbed.work(SALE);
        left.push(a.redis_quietly(&server, &["EVAL", LEAVE, "1", LOCK, "A:1"])?);
        a.give_back()?;
        left.push(Value::Int(i64::from(is_locked(&server)?)));
    }
    Ok(Outcome::new("the server counts: right, and a request for each step in and out")
        .claim("the inner call enters again", entered)
        .claim("the lock is free after the outer one, and not before", left == [1, 1, 0, 0].map(Value::Int))
        .claim("the unit is sold", testbed.sales()?.sold == 1))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    // Without pushes, so that only what is asked for costs requests: a hold that the server watches is renewed once more for that.
    let lock = tenure(server.url("wake=pubsub"), LEASE);
    let [mut a] = testbed.actors(["A"], &lock)?;
    let outer = a.try_take(&lock)?;
    let before = testbed.requests()?;
    let inner = a.try_take(&lock)?;
    a.look()?;
    testbed.work(SALE);
    a.sell()?;
    a.give_back()?;
    let cost = testbed.requests()? - before;
    testbed.work(SALE);
    let kept = a.is_held()? && is_locked(&server)?;
    let given_back = a.give_back()? && !is_locked(&server)?;
    Ok(Outcome::new(format!("the client counts: the inner call cost {cost} requests"))
        .claim("the inner call enters again", outer && inner)
        .claim("it costs no request", cost == 0)
        .claim("the lock is free after the outer one, and not before", kept && given_back)
        .claim("the unit is sold", testbed.sales()?.sold == 1))
}

fn is_locked(server: &Server) -> Result<bool> {
    server.ask(&["EXISTS", LOCK])
}
