//! Holds that linger with their process, on a server.

use std::time::Duration;

use tenure::Locker;
use tokio::time::timeout;

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{block_on, connect};

const SOON: Duration = Duration::from_secs(20);

async fn cycle(locker: &Locker, times: usize) {
    for _ in 0..times {
        locker.mutex("a").lock().await.expect("locked").release().await.expect("given back");
    }
}

pub(crate) fn a_claim_of_another_client_is_told_to_the_one_that_lingers() {
    let server = RedisServer::start();
    for options in ["", "&layout=plain", "&wake=pubsub", "&prefix=app:"] {
        block_on(async {
            // Far longer than the test: only a push ends it.
            let one = connect(&format!("{}?linger=1h{options}", server.url())).await;
            let other = connect(&format!("{}?{}", server.url(), options.trim_start_matches('&'))).await;
            for _ in 0..5 {
                cycle(&one, 10).await;
                let guard = timeout(SOON, other.mutex("a").lock()).await.expect("told").expect("locked");
                guard.release().await.expect("given back");
            }
            assert!(one.stats().handed_over >= 40, "{:?}", one.stats());
            one.close().await.expect("closed");
            other.close().await.expect("closed");
        });
    }
}

pub(crate) fn two_that_linger_take_turns() {
    let server = RedisServer::start();
    block_on(async {
        let url = format!("{}?linger=1h", server.url());
        let (one, other) = (connect(&url).await, connect(&url).await);
        let both = async { tokio::join!(cycle(&one, 300), cycle(&other, 300)) };
        timeout(SOON, both).await.expect("both come to their end");
        one.close().await.expect("closed");
        other.close().await.expect("closed");
    });
}
