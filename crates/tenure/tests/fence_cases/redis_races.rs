//! Clients that write at the same moment.

use tenure::fence::redis::{Decrement, RedisFence};
use tokio::task::JoinSet;

use super::redis::{get, link, stale, token};
use tenure_testkit::RedisServer;
use tenure_testkit::locker::block_on;

pub(crate) fn no_lower_token_overwrites_a_higher_one() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let clients = [RedisFence::new(link(&server.url()).await), RedisFence::new(link(&server.url()).await)];
        for round in 1..=200_u64 {
            let (low, high) = (10 * round, 10 * round + 1);
            let mut race = JoinSet::new();
            // Who starts first changes from round to round.
            for n in if round % 2 == 0 { [low, high] } else { [high, low] } {
                let fence = clients[usize::from(n == high)].clone();
                race.spawn(async move { (n, fence.set("k", n, &token(n)).await) });
            }
            while let Some(done) = race.join_next().await {
                match done.expect("no panic") {
                    (n, Ok(())) => assert!(n == low || n == high),
                    (n, Err(refused)) => assert_eq!((n, refused.stale()), (low, Some(&stale("k", low, high)))),
                }
            }
            assert_eq!(get::<u64>(&mut raw, &["GET", "k"]), high, "in round {round}");
        }
        let [low, high] = clients.map(|fence| fence.stats());
        assert_eq!((low.accepted + low.stale, high.accepted, high.stale), (200, 200, 0));
    });
}

pub(crate) fn many_who_decrement_take_no_more_than_there_is() {
    let server = RedisServer::start();
    let mut raw = server.raw();
    block_on(async {
        let first = RedisFence::new(link(&server.url()).await);
        first.set("k", 100, &token(1)).await.expect("written");
        let mut race = JoinSet::new();
        for i in 0..150 {
            let fence = if i % 10 == 0 { RedisFence::new(link(&server.url()).await) } else { first.clone() };
            race.spawn(async move { fence.decrement("k", 1, &token(1)).await.expect("not refused") });
        }
        let all = race.join_all().await;
        let mut left: Vec<u64> = all.iter().filter_map(|d| if let Decrement::Left(n) = d { Some(*n) } else { None }).collect();
        left.sort_unstable();
        assert_eq!(left, (0..100).collect::<Vec<_>>(), "each was taken once");
        assert_eq!(all.iter().filter(|d| **d == Decrement::Short { have: 0 }).count(), 50);
        assert_eq!(get::<u64>(&mut raw, &["GET", "k"]), 0);
    });
}
