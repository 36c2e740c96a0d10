//! A scene that two stories share: a master dies before its replica has heard of the last grant, and the replica takes over.

use std::rc::Rc;

use crate::cmd::lab::actor::Actor;
use crate::cmd::lab::address::Address;
use crate::cmd::lab::server::{Server, Setup};
use crate::cmd::lab::stage::{LOCK, Lane, SALE, Stage};
use crate::cmd::lab::timeline::Moment;
use crate::cmd::lab::upset::Played;

/// A master, its replica, and the address under which clients know whichever is the master.
pub(super) struct Pair {
    pub(super) master: Rc<Server>,
    pub(super) replica: Rc<Server>,
    pub(super) address: Address,
    lanes: [Lane; 2],
}

impl Pair {
    pub(super) fn start(stage: &Stage) -> Played<Self> {
        let master = stage.server_with(Setup::default())?;
        let replica = stage.server_with(Setup::default().replica_of(&master))?;
        stage.until("the replica follows its master", || follows(&replica))?;
        let lanes = [stage.watch(&master, "master")?, stage.watch(&replica, "replica")?];
        let address = Address::of(&master)?;
        Ok(Self { master, replica, address, lanes })
    }

    /// From now on the replica does not hear what the master says.
    pub(super) fn part(&self, stage: &Stage) -> Played<()> {
        // One that stands still keeps what has been sent to it, and would read that later: so the connection has to go too.
        self.replica.stop()?;
        self.master.ask::<u64>(&["CLIENT", "KILL", "TYPE", "replica"])?;
        stage.until("the master has no replica any more", || says(&self.master, "connected_slaves:0"))?;
        stage.mark(self.lanes[1], Moment::Did, "hears nothing of the master any more");
        Ok(())
    }

    /// The master dies, and the replica takes over with what it has.
    pub(super) fn fail_over(&self, stage: &Stage) -> Played<()> {
        self.master.kill()?;
        stage.mark(self.lanes[0], Moment::Killed, "dies");
        self.replica.go_on()?;
        self.replica.ask::<()>(&["REPLICAOF", "NO", "ONE"])?;
        stage.until("the replica is a master", || says(&self.replica, "role:master"))?;
        self.address.move_to(&self.replica);
        stage.mark(self.lanes[1], Moment::Did, "is the master now");
        Ok(())
    }

    /// The dead master comes back as a replica of the one that took over.
    pub(super) fn come_back(&self, stage: &Stage) -> Played<()> {
        self.master.restart()?;
        self.master.ask::<()>(&["REPLICAOF", "127.0.0.1", &self.replica.port().to_string()])?;
        stage.until("it follows the new master", || follows(&self.master))?;
        stage.mark(self.lanes[0], Moment::Did, "is back, as a replica");
        stage.watch_again(&self.master, self.lanes[0])
    }
}

fn follows(replica: &Server) -> Played<bool> {
    says(replica, "master_link_status:up")
}

fn says(server: &Server, word: &str) -> Played<bool> {
    Ok(server.ask::<String>(&["INFO", "replication"])?.lines().any(|line| line == word))
}

/// What has become of two who were both granted the lock.
pub(super) struct Both {
    pub(super) a: Actor,
    pub(super) b: Actor,
    /// Both were granted it, and the replica did not know of A's lock when it took over.
    pub(super) granted: bool,
    /// How many units each saw.
    pub(super) seen: [i64; 2],
}

/// A locks at the master, which dies; B locks at the replica. Both have looked at the stock then, and nobody has sold.
pub(super) fn both_are_granted(
    stage: &Stage,
    pair: &Pair,
    [mut a, mut b]: [Actor; 2],
    mut take: impl FnMut(&mut Actor) -> Played<bool>,
) -> Played<Both> {
    pair.part(stage)?;
    let first = take(&mut a)?;
    let seen_by_a = a.look()?;
    stage.work(SALE);
    pair.fail_over(stage)?;
    let unheard_of = pair.replica.ask::<u64>(&["EXISTS", LOCK])? == 0;
    let second = take(&mut b)?;
    let seen = [seen_by_a, b.look()?];
    stage.work(SALE);
    Ok(Both { a, b, granted: first && unheard_of && second, seen })
}
