//! A thousand clients wait for one lock: what each hand-over costs.

use std::time::{Duration, Instant};

use tenure::duration;

use crate::cmd::lab::crowd::{Crowd, Manner, Ratio};
use crate::cmd::lab::queuer::CHANNEL;
use crate::cmd::lab::server::Server;
use crate::cmd::lab::stage::{LOCK, Stage, tenure, tenure_fair};
use crate::cmd::lab::story::{Kind, Outcome, Story, Way};
use crate::cmd::lab::upset::{Played, Upset};

/// So many services, and so many clients in each of them.
const SERVICES: [&str; 4] = ["service 1", "service 2", "service 3", "service 4"];
const CLIENTS: u32 = 250;
const DELETE_AND_TELL: &str = "redis.call('del', KEYS[1]) return redis.call('publish', ARGV[1], '0')";
const UNITS: u32 = 10;
const WORK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);
/// Nobody renews during the story: only the hand-overs are counted.
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
        Way { kind: Kind::Tenure, how: "Mutex::fair: 1000 clients in line", play: in_line },
    ],
};

/// What it takes to sell all while a thousand wait.
struct Cost {
    /// For a sale.
    requests: Ratio,
    took: String,
}

fn naive(stage: &Stage) -> Played<Outcome> {
    let every = Duration::from_millis(100);
    let Cost { requests, took } = cost_of_sales(stage, |server| Manner::Polls { port: server.port(), every })?;
    let verdict = format!("{requests} requests for each sale, and the more the longer a sale takes; {took} for all");
    told(stage, verdict, "each sale costs a dozen requests at least", requests.is_at_least(12))
}

fn told_by_a_channel(stage: &Stage) -> Played<Outcome> {
    let Cost { requests, took } = cost_of_sales(stage, |server| Manner::Listens { port: server.port() })?;
    let verdict = format!("{requests} requests for each sale: every release wakes all, and one of them gets it; {took} for all");
    told(stage, verdict, "each sale costs hundreds of requests", requests.is_at_least(200))
}

fn with_tenure(stage: &Stage) -> Played<Outcome> {
    let Cost { requests, took } = cost_of_sales(stage, |server| Manner::Tenure { url: server.url("") })?;
    let verdict =
        format!("{requests} requests for each sale: one task of each client asks, and hands over to the next; {took} for all");
    told(stage, verdict, "a sale costs a handful of requests, however many tasks wait", !requests.is_at_least(9))
}

fn in_line(stage: &Stage) -> Played<Outcome> {
    let Cost { requests, took } = cost_of_sales(stage, |server| Manner::InLine { url: server.url("") })?;
    let verdict =
        format!("{requests} requests for each sale: three wake the next one alone, the rest keep places in line; {took} for all");
    told(stage, verdict, "a sale costs less than a hundred requests, with a thousand clients", !requests.is_at_least(100))
}

fn cost_of_sales(stage: &Stage, manner: impl Fn(&Server) -> Manner) -> Played<Cost> {
    let server = stage.server()?;
    let mut first = stage.actor("A")?;
    let lock = match manner(&server) {
        Manner::Tenure { url } => Some(tenure(url, LEASE)),
        Manner::InLine { url } => Some(tenure_fair(url, LEASE)),
        Manner::Polls { .. } | Manner::Listens { .. } => None,
    };
    let held = match &lock {
        Some(lock) => first.try_take(lock)?,
        None => first.redis(&server, &["SET", LOCK, "A", "NX"])?.is_yes(),
    };
    if !held {
        return Err(Upset::new("A is not granted the lock"));
    }
    if lock.is_none() {
        first.granted()?;
    }
    let crowd = Crowd { clients: CLIENTS, manner: manner(&server), lease: LEASE, work: WORK, parts: 1 };
    let mut services = stage.crowds(&SERVICES, &crowd)?;
    if lock.is_some() {
        settled(stage)?;
    }
    let before = stage.requests()?;
    let start = Instant::now();
    if lock.is_none() {
        first.redis_quietly(&server, &["EVAL", DELETE_AND_TELL, "1", LOCK, CHANNEL])?;
    }
    first.give_back()?;
    stage.until_at_most(PATIENCE, "all is sold", || Ok(stage.sales()?.sold >= u64::from(UNITS)))?;
    let took = Duration::from_millis(crate::output::millis(start.elapsed()));
    // What it costs to go home does not count.
    let requests = stage.requests()? - before;
    for service in &mut services {
        service.disperse()?;
    }
    Ok(Cost { requests: Ratio::new(requests, UNITS), took: duration::show(took) })
}

/// Waits until all have arranged to be woken. Those in line go on asking for their places, 200 times a second together.
fn settled(stage: &Stage) -> Played<()> {
    stage.until_at_most(PATIENCE, "all have arranged to be woken", || {
        let before = stage.requests()?;
        stage.work(Duration::from_millis(250));
        Ok(stage.requests()? - before <= 100)
    })
}

fn told(stage: &Stage, verdict: String, claim: &str, held: bool) -> Played<Outcome> {
    let sales = stage.sales()?;
    Ok(Outcome::new(verdict)
        .claim(claim, held)
        .claim("each unit is sold once", (sales.sold, sales.stale, sales.refused) == (u64::from(UNITS), 0, 0)))
}
