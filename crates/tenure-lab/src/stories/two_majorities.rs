//! A scene that two stories share: five servers make one lock, and one of them forgets its vote.

use std::rc::Rc;
use std::time::Duration;

use crate::error::Result;
use crate::locks::{LOCK, tenure};
use crate::password;
use crate::protocol::{LockSpec, RedlockSpec};
use crate::redis_server::Setup;
use crate::server::Server;
use crate::story::Outcome;
use crate::testbed::{Lane, SALE, Testbed};
use crate::virtual_address::{HasPort, VirtualAddress};

/// The node that forgets.
pub(super) const C: usize = 2;
/// Which servers A reaches, and which B reaches: the network is split.
const OF_A: [usize; 3] = [0, 1, C];
const OF_B: [usize; 3] = [C, 3, 4];

pub(super) struct Nodes {
    pub(super) servers: Vec<Rc<Server>>,
    pub(super) lanes: Vec<Lane>,
    /// Stands for a server that cannot be reached.
    nowhere: Vec<VirtualAddress>,
}

impl Nodes {
    pub(super) fn start(testbed: &Testbed, setup: impl Fn(usize) -> Setup) -> Result<Self> {
        let servers = (0..5).map(|n| testbed.server_with(setup(n))).collect::<Result<Vec<_>>>()?;
        let names = ["node 1", "node 2", "node 3", "node 4", "node 5"];
        let lanes = servers.iter().zip(names).map(|(server, name)| testbed.watch(server, name)).collect::<Result<_>>()?;
        let nowhere = (0..5).map(|_| VirtualAddress::nowhere()).collect::<Result<_>>()?;
        Ok(Self { servers, lanes, nowhere })
    }

    /// Redlock as A and as B see the nodes.
    pub(super) fn redlock(&self, ttl: Duration, renewed: bool) -> [LockSpec; 2] {
        [OF_A, OF_B].map(|reached| {
            let (ports, key) = (self.ports(reached), LOCK.to_owned());
            LockSpec::Redlock(RedlockSpec { ports, key, ttl, renewed })
        })
    }

    /// Tenure's quorum as A and as B see the nodes.
    pub(super) fn quorum(&self, lease: Duration) -> [LockSpec; 2] {
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
    pub(super) fn with_lock(&self) -> Result<Vec<usize>> {
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
    testbed: &Testbed,
    nodes: &Nodes,
    [of_a, of_b]: [LockSpec; 2],
    forgets: impl FnOnce() -> Result<()>,
    verdict: &str,
) -> Result<Outcome> {
    let (mut a, mut b) = (testbed.actor("A")?, testbed.actor("B")?);
    let first = a.try_take(&of_a)? && nodes.with_lock()? == OF_A;
    let seen_by_a = a.look()?;
    testbed.work(SALE);
    forgets()?;
    let second = b.try_take(&of_b)?;
    let seen = [seen_by_a, if second { b.look()? } else { 0 }];
    testbed.work(SALE);
    if second {
        b.sell()?;
        testbed.work(SALE);
    }
    if matches!(&of_a, LockSpec::Redlock(lock) if lock.renewed) {
        testbed.until_renewal_fails(&mut a)?;
    }
    let still_believes = a.is_held()? && !a.was_told();
    a.sell()?;
    let sales = testbed.sales()?;
    Ok(Outcome::new(verdict)
        .claim("A has a majority, and so has B", first && second)
        .claim("both believe that they hold the lock, and see the last unit", still_believes && seen == [1, 1])
        .claim("the last unit is sold twice", (sales.oversold(), sales.stale) == (1, 1)))
}
