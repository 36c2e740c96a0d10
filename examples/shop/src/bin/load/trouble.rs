//! What goes wrong while customers buy, again and again until all are served.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::instance::Instances;
use crate::{Anything, Progress};

/// Longer than the lease of an instance.
const PAUSE: Duration = Duration::from_millis(1_500);

/// Makes trouble each time that so many orders have been answered; returns how often.
pub(crate) async fn make(
    instances: &mut Instances,
    locks: &redis::Client,
    progress: &Progress,
    every: u64,
    orders: u64,
) -> Result<u64, Anything> {
    let mut troubles = 0;
    while orders_answered(progress, (troubles + 1) * every, orders).await {
        let which = usize::try_from(troubles / 3)? % instances.count();
        match troubles % 3 {
            0 => instances.kill_and_restart(which).await?,
            1 => instances.pause(which, PAUSE).await?,
            _ => forget_all_locks(locks).await?,
        }
        troubles += 1;
    }
    Ok(troubles)
}

/// As a lock server that restarts without its data, or fails over to a replica that lags.
async fn forget_all_locks(locks: &redis::Client) -> Result<(), Anything> {
    let mut connection = locks.get_multiplexed_async_connection().await?;
    Ok(redis::cmd("FLUSHDB").exec_async(&mut connection).await?)
}

/// Waits for that many answers. False if there will not be as many.
async fn orders_answered(progress: &Progress, wanted: u64, orders: u64) -> bool {
    loop {
        let answered = progress.answered.load(Ordering::Relaxed);
        if wanted >= orders {
            return false;
        }
        if answered >= wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
