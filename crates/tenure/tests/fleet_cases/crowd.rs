//! Holders and waiters that go through a failover, and what they must see.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tenure::{Guard, HoldState, Locker, LostReason};
use tokio::task::JoinSet;

use tenure_testkit::RedisServer;
use tenure_testkit::locker::{connect, must};

/// A third of it is longer than a failover takes here.
pub(crate) const LEASE: Duration = Duration::from_secs(15);

const WAITERS: u64 = 100;

/// How much of the stream of writes a server has.
pub(crate) fn offset(server: &RedisServer) -> u64 {
    let info: String = redis::cmd("INFO").arg("replication").query(&mut server.raw()).expect("asked");
    let line = info.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).expect("an offset");
    line.trim().parse().expect("a number")
}

/// Holds on many names, and a hundred waiters of four processes behind one of them.
pub(crate) struct Crowd {
    lockers: Vec<Locker>,
    holds: Vec<Guard>,
    awaited: Guard,
    waiters: JoinSet<tenure::Token>,
    /// Counted without protection but that of the lock.
    counter: Arc<AtomicU64>,
}

impl Crowd {
    /// `awaited` names the lock that all wait for; the other holds are spread over the deployment.
    pub(crate) async fn gather(url: &str, awaited: &str) -> Self {
        let url = format!("{url}{}lease={}s", if url.contains('?') { '&' } else { '?' }, LEASE.as_secs());
        let mut lockers = Vec::new();
        for _ in 0..5 {
            lockers.push(connect(&url).await);
        }
        let mut holds = Vec::new();
        for i in 0..30 {
            let noted = lockers[0].mutex(format!("held:{i}"));
            let mutex = if i % 3 == 0 { noted.note("a note") } else { noted };
            holds.push(mutex.lock().await.expect("locked"));
        }
        let guard = lockers[0].mutex(awaited).lock().await.expect("locked");
        let (mut waiters, counter) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
        for i in 0..WAITERS {
            let (mutex, counter) = (lockers[1 + i as usize % 4].mutex(awaited), Arc::clone(&counter));
            waiters.spawn(async move {
                let guard = mutex.lock().await.expect("a turn");
                let seen = counter.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                counter.store(seen + 1, Ordering::SeqCst);
                guard.check().expect("held all the time");
                guard.token()
            });
        }
        let crowd = Self { lockers, holds, awaited: guard, waiters, counter };
        must("all wait", async {
            while crowd.lockers.iter().map(|l| l.stats().waiting).sum::<u64>() < WAITERS {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
        crowd
    }

    /// After an outage. If it was short enough and the store has lost nothing, nobody may have lost anything; then all
    /// waiters get their turn.
    pub(crate) async fn goes_on(mut self, down_since: Instant) {
        let outage = down_since.elapsed();
        // Long enough that every hold must have been renewed at the new place.
        let renewed = self.lockers[0].stats().renewed;
        must("all holds are renewed", async {
            while self.lockers[0].stats().renewed < renewed + 31 && self.lockers[0].stats().lost == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
        if outage < LEASE / 3 {
            for guard in self.holds.iter().chain([&self.awaited]) {
                assert_ne!(guard.state(), HoldState::Lost, "lost in an outage of {outage:?}: {:?}", guard.check());
            }
        } else {
            println!("an outage of {outage:?}: too long on this machine to ask that nothing is lost");
        }
        let last = self.awaited.token();
        drop(self.awaited);
        let mut tokens = BTreeSet::new();
        while let Some(token) = must("every waiter gets its turn", self.waiters.join_next()).await {
            tokens.insert(token.expect("no waiter failed"));
        }
        assert_eq!(tokens.len() as u64, WAITERS, "every turn has a token of its own");
        assert!(tokens.first() > Some(&last), "and larger than the one before the failover");
        assert_eq!(self.counter.load(Ordering::SeqCst), WAITERS, "no two were in at once");
        for guard in self.holds {
            match guard.check() {
                Ok(()) => guard.release().await.expect("given back"),
                Err(lost) => assert!(matches!(lost.reason, LostReason::Revoked | LostReason::Expired)),
            }
        }
    }
}

/// Locks are taken all the while: each call that was under way when the master died ends in a lock that is there under its
/// owner, or in one that is told to be lost; and nothing is there that nobody has.
pub(crate) async fn in_flight(url: &str, fail_over: impl FnOnce()) {
    let locker = connect(&format!("{url}?lease=20s")).await;
    let mut calls = JoinSet::new();
    for i in 0..400 {
        let mutex = locker.mutex(format!("L{i}"));
        calls.spawn(async move {
            tokio::time::sleep(Duration::from_millis(i)).await;
            mutex.lock().await
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::task::block_in_place(fail_over);
    let mut guards = Vec::new();
    while let Some(guard) = must("every call is answered", calls.join_next()).await {
        guards.push(guard.expect("no panic").expect("locked in the end"));
    }
    assert_eq!(guards.len(), 400);
    // Long enough that each has been renewed, or told that it is lost.
    let renewed = locker.stats().renewed;
    must("renewals", async {
        while locker.stats().renewed < renewed + guards.len() as u64 - locker.stats().lost {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let other = connect(url).await;
    let mut owners = BTreeSet::new();
    for guard in &guards {
        let holders = other.mutex(guard.resource().clone()).inspect().await.expect("inspected").holders;
        let holders: Vec<&str> = holders.iter().map(|holder| &*holder.owner).collect();
        let own = guard.owner_id().to_string();
        // Lost in between is lost, too.
        let expected = if guard.is_valid() { vec![&*own] } else { vec![] };
        assert!(holders == expected || !guard.is_valid() && holders.is_empty(), "{:?} is held by {holders:?}", guard.resource());
        assert!(owners.insert(own), "no owner has two locks");
    }
    drop(guards);
    must("all is given back", async {
        while !other.list("").await.expect("listed").is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
