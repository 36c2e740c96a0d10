//! What both Java and Rust can hold, and how each takes it and gives it back: a row for each kind.

use std::pin::Pin;

use tenure::{Guard, Locker};

type Soon<T> = Pin<Box<dyn Future<Output = T> + Send>>;
type Held = Box<dyn Hold>;

/// A hold of ours, of whatever kind.
pub(crate) trait Hold: Send {
    /// The fencing token, if the kind has one.
    fn token(&self) -> Option<u64>;

    /// Fails if the hold is lost.
    fn check(&self);

    fn give(self: Box<Self>) -> Soon<()>;
}

/// A kind of lock in both worlds. Where holders may share it, the two words are of those who may not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// In the names of tests and locks.
    pub(crate) name: &'static str,
    /// What Java calls it.
    pub(crate) java: &'static str,
    /// What Java does to a new name before anybody takes it: a verb, and what follows the name.
    pub(crate) first: Option<(&'static str, &'static str)>,
    pub(crate) take: fn(&Locker, &str) -> Soon<Held>,
    pub(crate) attempt: fn(&Locker, &str) -> Soon<Option<Held>>,
}

pub(crate) const LOCK: Kind = Kind { name: "lock", java: "lock", first: None, take: lock, attempt: try_lock };
pub(crate) const FENCED: Kind = Kind { name: "fenced", java: "fenced", ..LOCK };

impl Kind {
    /// A command for Java.
    pub(crate) fn tell(self, verb: &str, name: &str, more: &str) -> String {
        format!("{verb} {} {name} {more}", self.java)
    }
}

fn lock(locker: &Locker, name: &str) -> Soon<Held> {
    let taking = locker.mutex(name).lock();
    Box::pin(async move { Box::new(taking.await.expect("locked")) as _ })
}

fn try_lock(locker: &Locker, name: &str) -> Soon<Option<Held>> {
    let asking = locker.mutex(name).try_lock();
    Box::pin(async move { asking.await.expect("asked").map(|guard| Box::new(guard) as _) })
}

impl Hold for Guard {
    fn token(&self) -> Option<u64> {
        Some(Self::token(self).get())
    }

    fn check(&self) {
        Self::check(self).expect("still held");
    }

    fn give(self: Box<Self>) -> Soon<()> {
        Box::pin(async move { self.release().await.expect("given back") })
    }
}
