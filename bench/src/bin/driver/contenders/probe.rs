//! What the network and the server take at least: one round trip of a script, and one message to a listener.

use std::time::Duration;

use futures_util::StreamExt;
use redis::cmd;
use tenure_bench::clock;
use tenure_bench::histogram::Counts;
use tenure_bench::options::Options;
use tenure_bench::outcome::Outcome;
use tokio::runtime::Runtime;

use super::raw::{self, Raw};
use crate::Fault;
use crate::crowd::{Client, Lock};
use crate::orders::{self, Order};

const CHANNEL: &str = "bench:push";

pub(crate) fn run(runtime: &Runtime, options: &Options) -> Result<(), Fault> {
    orders::word("ready");
    while let Some(order) = orders::next() {
        if let Order::Go { round, .. } = order {
            let outcome = runtime.block_on(async {
                let round_trip_us = round_trip(options, round).await?;
                let push_us = push(options).await?;
                Ok::<_, Fault>(Outcome { round_trip_us, push_us, ..Outcome::default() })
            })?;
            orders::say(&outcome);
        }
    }
    Ok(())
}

async fn round_trip(options: &Options, round: u64) -> Result<Option<f64>, Fault> {
    let (trips, end) = (Counts::default(), end(options));
    let mut lock = Raw::connect(options).await?.lock(&format!("bench:probe:{round}"));
    while clock::now() < end {
        let before = clock::now();
        let held = lock.acquire(true).await?;
        trips.add(clock::now() - before);
        lock.release(held).await?;
    }
    Ok(micros(&trips))
}

/// From before a message is published to after another connection has it.
async fn push(options: &Options) -> Result<Option<f64>, Fault> {
    let (pushes, end) = (Counts::default(), end(options));
    let mut publisher = raw::connect(&options.urls[0]).await?;
    let mut listener = redis::Client::open(&*options.urls[0])?.get_async_pubsub().await?;
    listener.subscribe(CHANNEL).await?;
    let (heard, mut next) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        let mut messages = listener.into_on_message();
        while messages.next().await.is_some() {
            if heard.send(clock::now()).await.is_err() {
                return;
            }
        }
    });
    while clock::now() < end {
        let before = clock::now();
        cmd("PUBLISH").arg(CHANNEL).arg("0").exec_async(&mut publisher).await?;
        let heard = next.recv().await.ok_or("the listener has ended")?;
        pushes.add(heard.saturating_sub(before));
    }
    Ok(micros(&pushes))
}

fn end(options: &Options) -> u64 {
    clock::now() + Duration::from_secs_f64(options.seconds / 2.0).as_nanos() as u64
}

fn micros(counts: &Counts) -> Option<f64> {
    counts.total().quantile(0.5).map(|nanos| nanos / 1e3)
}
