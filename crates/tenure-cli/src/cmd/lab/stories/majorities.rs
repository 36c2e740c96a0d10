//! A scene that two stories share: five servers make one lock, and one of them forgets its vote.

use std::rc::Rc;
use std::time::Duration;

use crate::cmd::lab::address::{Address, Place};
use crate::cmd::lab::password;
use crate::cmd::lab::server::{Server, Setup};
use crate::cmd::lab::stage::{LOCK, Lane, SALE, Stage, tenure};
use crate::cmd::lab::story::Outcome;
use crate::cmd::lab::upset::Played;
use crate::cmd::lab::words::{Lock, RedlockLock};

/// The node that forgets.
pub(super) const C: usize = 2;
/// Whom A reaches, and whom B reaches: the network has seen better days.
const OF_A: [usize; 3] = [0, 1, C];
const OF_B: [usize; 3] = [C, 3, 4];

pub(super) struct Nodes {
    pub(super) servers: Vec<Rc<Server>>,
    pub(super) lanes: Vec<Lane>,
    /// Stands for a server that cannot be reached.
    nowhere: Vec<Address>,
}

impl Nodes {
    pub(super) fn start(stage: &Stage, setup: impl Fn(usize) -> Setup) -> Played<Self> {
        let servers = (0..5).map(|n| stage.server_with(setup(n))).collect::<Played<Vec<_>>>()?;
        let names = ["node 1", "node 2", "node 3", "node 4", "node 5"];
        let lanes = servers.iter().zip(names).map(|(server, name)| stage.watch(server, name)).collect::<Played<_>>()?;
        let nowhere = (0..5).map(|_| Address::nowhere()).collect::<Played<_>>()?;
        Ok(Self { servers, lanes, nowhere })
    }

    /// Redlock as A and as B see the nodes.
    pub(super) fn redlock(&self, ttl: Duration, renewed: bool) -> [Lock; 2] {
        [OF_A, OF_B].map(|reached| {
            let (ports, key) = (self.ports(reached), LOCK.to_owned());
            Lock::Redlock(RedlockLock { ports, key, ttl, renewed })
        })
    }

    /// Tenure's quorum as A and as B see the nodes.
    pub(super) fn quorum(&self, lease: Duration) -> [Lock; 2] {
        [OF_A, OF_B].map(|reached| {
            let nodes: Vec<_> = self.ports(reached).iter().map(|port| password::url(*port, "")).collect();
            tenure(format!("quorum:{}?lease={}ms", nodes.join("|"), lease.as_millis()), lease)
        })
    }

    fn ports(&self, reached: [usize; 3]) -> Vec<u16> {
        let port = |n: usize| if reached.contains(&n) { self.servers[n].port() } else { self.nowhere[n].port() };
        (0..self.servers.len()).map(port).collect()
    }

    /// Which nodes have the lock.
    pub(super) fn with_lock(&self) -> Played<Vec<usize>> {
        let mut with_lock = Vec::new();
        for (n, server) in self.servers.iter().enumerate() {
            if server.ask::<bool>(&["EXISTS", LOCK])? {
                with_lock.push(n);
            }
        }
        Ok(with_lock)
    }
}

/// A has the lock at nodes 1, 2 and 3; node 3 forgets; B asks nodes 3, 4 and 5, and both sell.
pub(super) fn two_majorities(
    stage: &Stage,
    nodes: &Nodes,
    [of_a, of_b]: [Lock; 2],
    forgets: impl FnOnce() -> Played<()>,
    verdict: &str,
) -> Played<Outcome> {
    let (mut a, mut b) = (stage.actor("A")?, stage.actor("B")?);
    let first = a.try_take(&of_a)? && nodes.with_lock()? == OF_A;
    let seen_by_a = a.look()?;
    stage.work(SALE);
    forgets()?;
    let second = b.try_take(&of_b)?;
    let seen = [seen_by_a, if second { b.look()? } else { 0 }];
    stage.work(SALE);
    if second {
        b.sell()?;
        stage.work(SALE);
    }
    if matches!(&of_a, Lock::Redlock(lock) if lock.renewed) {
        stage.until_renewal_fails(&mut a)?;
    }
    let still_believes = a.is_held()? && !a.was_told();
    a.sell()?;
    let sales = stage.sales()?;
    Ok(Outcome::new(verdict)
        .claim("A has a majority, and so has B", first && second)
        .claim("both believe that they hold the lock, and see the last unit", still_believes && seen == [1, 1])
        .claim("the last unit is sold twice", (sales.oversold(), sales.stale) == (1, 1)))
}
