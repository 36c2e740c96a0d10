//! One hot key: how many clients can sell at the same time, and what a sale costs.

use std::time::{Duration, Instant};

use crate::crowd::{Crowd, Ratio, Strategy};
use crate::error::Result;
use crate::redis_server::Setup;
use crate::server::Server;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;
use crate::timeline::Moment;

const SERVICES: [&str; 2] = ["service 1", "service 2"];
const CLIENTS: u32 = 5;
const UNITS: u32 = 500;
const PARTS: u32 = 5;
const WORK: Duration = Duration::from_millis(4);
const POLL: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

pub(crate) static STORY: Story = Story {
    id: "F17",
    title: "one hot key is the bottleneck",
    lesson: "Split what can be split: five locks of 100 units each let five sell at a time. What cannot be split is handed over \
             where it is.",
    stock: UNITS,
    ways: &[
        Way { kind: Kind::Naive, how: "one lock for 500 units, SET NX PX, asked for every 5 ms", play: naive },
        Way { kind: Kind::Usual, how: "five keys for 100 units each, by hand", play: in_parts_by_hand },
        Way { kind: Kind::Tenure, how: "Striped: five stripes of 100 units", play: striped },
        Way { kind: Kind::Tenure, how: "one Mutex, handed over inside of each service", play: handed_over },
    ],
};

/// What it took to sell everything.
struct SoldOut {
    most_at_once: u64,
    /// For a sale.
    requests: Ratio,
    every: String,
}

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let SoldOut { most_at_once, requests, every } =
        sell_out(testbed, 1, |server| Strategy::Polls { port: server.port(), every: POLL })?;
    Ok(told(testbed, format!("one after the other: a sale every {every}, and {requests} requests each"))?
        .claim("one sells at a time", most_at_once == 1)
        .claim("each sale takes two requests at least", requests.is_at_least(2)))
}

fn in_parts_by_hand(testbed: &Testbed) -> Result<Outcome> {
    let SoldOut { most_at_once, every, .. } =
        sell_out(testbed, PARTS, |server| Strategy::Polls { port: server.port(), every: POLL })?;
    let verdict = format!("up to {most_at_once} at a time, a sale every {every}: enough, for those who write it themselves");
    Ok(told(testbed, verdict)?.claim("several sell at a time", (2..=u64::from(PARTS)).contains(&most_at_once)))
}

fn striped(testbed: &Testbed) -> Result<Outcome> {
    let SoldOut { most_at_once, every, .. } = sell_out(testbed, PARTS, |server| Strategy::Tenure { url: server.url("") })?;
    let verdict = format!("up to {most_at_once} at a time, a sale every {every}, from whichever part is free");
    Ok(told(testbed, verdict)?.claim("several sell at a time", (2..=u64::from(PARTS)).contains(&most_at_once)))
}

fn handed_over(testbed: &Testbed) -> Result<Outcome> {
    let SoldOut { most_at_once, requests, .. } = sell_out(testbed, 1, |server| Strategy::Tenure { url: server.url("") })?;
    let verdict = format!("one after the other, with {requests} requests each: most holds never leave the service");
    Ok(told(testbed, verdict)?
        .claim("one sells at a time", most_at_once == 1)
        .claim("a sale takes less than a lock and a release, two requests", !requests.is_at_least(2)))
}

fn sell_out(testbed: &Testbed, parts: u32, strategy: impl Fn(&Server) -> Strategy) -> Result<SoldOut> {
    let server = testbed.server_with(Setup::default())?;
    if parts > 1 {
        testbed.split_stock(parts)?;
    }
    let lane = testbed.lane("shop");
    let start = Instant::now();
    let crowd = Crowd { clients: CLIENTS, strategy: strategy(&server), lease: LEASE, work: WORK, parts };
    let mut services = testbed.crowds(&SERVICES, &crowd)?;
    let mut told = 0;
    testbed.until_at_most(PATIENCE, "all is sold", || {
        let sold = testbed.sales()?.sold;
        if sold / 100 > told {
            told = sold / 100;
            testbed.mark(lane, Moment::Sold, &format!("{sold} are sold"));
        }
        Ok(sold >= u64::from(UNITS))
    })?;
    let (took, requests) = (start.elapsed(), testbed.requests()?);
    for service in &mut services {
        service.stop_crowd()?;
    }
    let every = format!("{:.1} ms", took.as_secs_f64() * 1e3 / f64::from(UNITS));
    Ok(SoldOut { most_at_once: testbed.most_at_once()?, requests: Ratio::new(requests, UNITS), every })
}

fn told(testbed: &Testbed, verdict: String) -> Result<Outcome> {
    let sales = testbed.sales()?;
    let once = (sales.sold, sales.stale, sales.refused) == (u64::from(UNITS), 0, 0);
    Ok(Outcome::new(verdict).claim("each unit is sold once", once))
}
