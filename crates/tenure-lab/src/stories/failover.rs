//! A scene that two stories share: a master dies before its replica has got the last grant, and the replica takes over.

use std::rc::Rc;

use crate::actor::Actor;
use crate::error::Result;
use crate::locks::LOCK;
use crate::redis_server::Setup;
use crate::server::Server;
use crate::testbed::{Lane, SALE, Testbed};
use crate::timeline::Moment;
use crate::virtual_address::VirtualAddress;

/// A master, its replica, and the address under which clients know whichever is the master.
pub(super) struct Pair {
    pub(super) master: Rc<Server>,
    pub(super) replica: Rc<Server>,
    pub(super) address: VirtualAddress,
    lanes: [Lane; 2],
}

impl Pair {
    pub(super) fn start(testbed: &Testbed) -> Result<Self> {
        let master = testbed.server_with(Setup::default())?;
        let replica = testbed.server_with(Setup::default().replica_of(master.port()))?;
        testbed.until("the replica follows its master", || follows(&replica))?;
        let lanes = [testbed.watch(&master, "master")?, testbed.watch(&replica, "replica")?];
        let address = VirtualAddress::of(&master)?;
        Ok(Self { master, replica, address, lanes })
    }

    /// From now on the replica does not hear what the master says.
    pub(super) fn part(&self, testbed: &Testbed) -> Result<()> {
        // One that stands still keeps what has been sent to it, and would read that later: so the connection has to go too.
        self.replica.stop()?;
        self.master.ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"])?;
        testbed.until("the master has no replica any more", || says(&self.master, "connected_slaves:0"))?;
        testbed.mark(self.lanes[1], Moment::Did, "hears nothing of the master any more");
        Ok(())
    }

    /// The master dies, and the replica takes over with what it has.
    pub(super) fn fail_over(&self, testbed: &Testbed) -> Result<()> {
        self.master.kill()?;
        testbed.mark(self.lanes[0], Moment::Killed, "dies");
        self.replica.go_on()?;
        self.replica.ask::<()>(&["REPLICAOF", "NO", "ONE"])?;
        testbed.until("the replica is a master", || says(&self.replica, "role:master"))?;
        self.address.move_to(&self.replica);
        testbed.mark(self.lanes[1], Moment::Did, "is the master now");
        Ok(())
    }

    /// The dead master comes back as a replica of the one that took over.
    pub(super) fn come_back(&self, testbed: &Testbed) -> Result<()> {
        self.master.restart()?;
        self.master.ask::<()>(&["REPLICAOF", "127.0.0.1", &self.replica.port().to_string()])?;
        testbed.until("it follows the new master", || follows(&self.master))?;
        testbed.mark(self.lanes[0], Moment::Did, "is back, as a replica");
        testbed.watch_again(&self.master, self.lanes[0])
    }
}

fn follows(replica: &Server) -> Result<bool> {
    says(replica, "master_link_status:up")
}

fn says(server: &Server, word: &str) -> Result<bool> {
    Ok(server.ask::<String>(&["INFO", "replication"])?.lines().any(|line| line == word))
}

/// What became of two clients that were both granted the lock.
pub(super) struct Both {
    pub(super) a: Actor,
    pub(super) b: Actor,
    /// Both were granted it, and the replica did not know of A's lock when it took over.
    pub(super) granted: bool,
    /// How many units each saw.
    pub(super) seen: [i64; 2],
}

/// A locks at the master, which dies; B locks at the replica. Both have read the stock, and none has sold.
pub(super) fn both_are_granted(
    testbed: &Testbed,
    pair: &Pair,
    [mut a, mut b]: [Actor; 2],
    mut take: impl FnMut(&mut Actor) -> Result<bool>,
) -> Result<Both> {
    pair.part(testbed)?;
    let first = take(&mut a)?;
    let seen_by_a = a.look()?;
    testbed.work(SALE);
    pair.fail_over(testbed)?;
    let unheard_of = pair.replica.ask::<u64>(&["EXISTS", LOCK])? == 0;
    let second = take(&mut b)?;
    let seen = [seen_by_a, b.look()?];
    testbed.work(SALE);
    Ok(Both { a, b, granted: first && unheard_of && second, seen })
}
