//! A thousand clients wait for one lock: what each hand-over costs.

use std::time::{Duration, Instant};

use tenure::duration;

use crate::crowd::{Crowd, Ratio, Strategy};
use crate::crowd_client::CHANNEL;
use crate::error::{LabError, Result};
use crate::locks::{LOCK, tenure, tenure_fair};
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

/// So many services, and so many clients in each of them.
const SERVICES: [&str; 4] = ["service 1", "service 2", "service 3", "service 4"];
const CLIENTS: u32 = 250;
const DELETE_AND_TELL: &str = "redis.call('del', KEYS[1]) return redis.call('publish', ARGV[1], '0')";
const UNITS: u32 = 10;
const WORK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than the story, so that no renewal is counted, only the hand-overs.
const LEASE: Duration = Duration::from_secs(60);

pub(crate) static STORY: Story = Story {
    id: "F16",
    title: "a thousand wait for one lock",
    lesson: "What a hand-over costs must not depend on how many wait.",
    stock: UNITS,
    ways: &[
        Way { kind: Kind::Naive, how: "1000 clients ask every 100 ms", play: naive },
        Way { kind: Kind::Usual, how: "1000 clients listen to the lock's channel", play: told_by_a_channel },
        Way { kind: Kind::Tenure, how: "Mutex: 4 clients with 250 tasks each", play: with_tenure },
        Way { kind: Kind::Tenure, how: "Mutex::fair: 1000 clients in the queue", play: queued },
    ],
};

/// What it takes to sell all while a thousand wait.
struct Cost {
    /// For a sale.
    requests: Ratio,
    took: String,
}

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let every = Duration::from_millis(100);
    let Cost { requests, took } = cost_of_sales(testbed, |server| Strategy::Polls { port: server.port(), every })?;
    let verdict = format!("{requests} requests for each sale, and the more the longer a sale takes; {took} for all");
    told(testbed, verdict, "each sale costs a dozen requests at least", requests.is_at_least(12))
}

fn told_by_a_channel(testbed: &Testbed) -> Result<Outcome> {
    let Cost { requests, took } = cost_of_sales(testbed, |server| Strategy::Listens { port: server.port() })?;
    let verdict = format!("{requests} requests for each sale: every release wakes all, and one of them gets it; {took} for all");
    told(testbed, verdict, "each sale costs hundreds of requests", requests.is_at_least(200))
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let Cost { requests, took } = cost_of_sales(testbed, |server| Strategy::Tenure { url: server.url("") })?;
    let verdict =
        format!("{requests} requests for each sale: one task of each client asks, and hands over to the next; {took} for all");
    told(testbed, verdict, "a sale costs a handful of requests, however many tasks wait", !requests.is_at_least(9))
}

fn queued(testbed: &Testbed) -> Result<Outcome> {
    let Cost { requests, took } = cost_of_sales(testbed, |server| Strategy::Queues { url: server.url("") })?;
    let verdict = format!(
        "{requests} requests for each sale: three wake the next one alone, the rest keep queue positions; {took} for all"
    );
    told(testbed, verdict, "a sale costs less than a hundred requests, with a thousand clients", !requests.is_at_least(100))
}

fn cost_of_sales(testbed: &Testbed, strategy: impl Fn(&Server) -> Strategy) -> Result<Cost> {
    let server = testbed.server()?;
    let mut first = testbed.actor("A")?;
    let lock = match strategy(&server) {
        Strategy::Tenure { url } => Some(tenure(url, LEASE)),
        Strategy::Queues { url } => Some(tenure_fair(url, LEASE)),
        Strategy::Polls { .. } | Strategy::Listens { .. } => None,
    };
    let held = match &lock {
        Some(lock) => first.try_take(lock)?,
        None => first.redis(&server, &["SET", LOCK, "A", "NX"])?.is_yes(),
    };
    if !held {
        return Err(LabError::new("A is not granted the lock"));
    }
    if lock.is_none() {
        first.granted()?;
    }
    let crowd = Crowd { clients: CLIENTS, strategy: strategy(&server), lease: LEASE, work: WORK, parts: 1 };
    let mut services = testbed.crowds(&SERVICES, &crowd)?;
    if lock.is_some() {
        settled(testbed)?;
    }
    let before = testbed.requests()?;
    let start = Instant::now();
    if lock.is_none() {
        first.redis_quietly(&server, &["EVAL", DELETE_AND_TELL, "1", LOCK, CHANNEL])?;
    }
    first.give_back()?;
    testbed.until_at_most(PATIENCE, "all is sold", || Ok(testbed.sales()?.sold >= u64::from(UNITS)))?;
    let took = Duration::from_millis(crate::millis(start.elapsed()));
    // What it costs to go home does not count.
    let requests = testbed.requests()? - before;
    for service in &mut services {
        service.stop_crowd()?;
    }
    Ok(Cost { requests: Ratio::new(requests, UNITS), took: duration::show(took) })
}

/// Waits until all have arranged to be woken. Waiters in the queue go on asking to keep their positions, 200 times a second together.
fn settled(testbed: &Testbed) -> Result<()> {
    testbed.until_at_most(PATIENCE, "all have arranged to be woken", || {
        let before = testbed.requests()?;
        testbed.work(Duration::from_millis(250));
        Ok(testbed.requests()? - before <= 100)
    })
}

fn told(testbed: &Testbed, verdict: String, claim: &str, held: bool) -> Result<Outcome> {
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim(claim, held)
        .claim("each unit is sold once", (sales.sold, sales.stale, sales.refused) == (u64::from(UNITS), 0, 0)))
}
