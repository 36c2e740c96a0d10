//! What both Java and Rust can hold, and how each takes it and gives it back: a row for each kind.

use std::pin::Pin;

use tenure::{Guard, Locker, Result};

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

/// A kind of lock in both worlds, or two kinds that exclude each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    /// In the names of tests and locks.
    pub(crate) name: &'static str,
    /// What Java calls that which Java takes.
    pub(crate) java: &'static str,
    /// What Java calls that which we take.
    pub(crate) ours: &'static str,
    /// What Java does to a new name before anybody takes it: a verb, and what follows the name.
    pub(crate) first: Option<(&'static str, &'static str)>,
    /// What Java adds to take it in a way that its death ends: without a lease, its watchdog goes with it.
    pub(crate) mortal: &'static str,
    /// What our URL needs besides.
    pub(crate) options: &'static str,
    pub(crate) take: fn(&Locker, &str) -> Soon<Held>,
    pub(crate) attempt: fn(&Locker, &str) -> Soon<Option<Held>>,
}

pub(crate) const LOCK: Kind = Kind {
    name: "lock",
    java: "lock",
    ours: "lock",
    first: None,
    mortal: "",
    options: "",
    take: |locker, name| held(locker.mutex(name).lock()),
    attempt: |locker, name| asked(locker.mutex(name).try_lock()),
};

pub(crate) const FENCED: Kind = Kind { name: "fenced", java: "fenced", ours: "fenced", ..LOCK };

pub(crate) const FAIR: Kind = Kind {
    name: "fair",
    java: "fair",
    ours: "fair",
    take: |locker, name| held(locker.mutex(name).fair().lock()),
    attempt: |locker, name| asked(locker.mutex(name).fair().try_lock()),
    ..LOCK
};

pub(crate) const WRITERS: Kind = Kind {
    name: "writers",
    java: "write",
    ours: "write",
    take: |locker, name| held(locker.rwlock(name).write()),
    attempt: |locker, name| asked(locker.rwlock(name).try_write()),
    ..LOCK
};

pub(crate) const JAVA_READS: Kind = Kind { name: "java_reads", java: "read", ..WRITERS };

pub(crate) const RUST_READS: Kind = Kind {
    name: "rust_reads",
    ours: "read",
    take: |locker, name| held(locker.rwlock(name).read()),
    attempt: |locker, name| asked(locker.rwlock(name).try_read()),
    ..WRITERS
};

pub(crate) const PERMIT: Kind = Kind {
    name: "permit",
    java: "permit",
    ours: "permit",
    first: Some(("set", "1")),
    // It has no watchdog.
    mortal: "lease=10000",
    take: |locker, name| held(locker.semaphore(name, 1).acquire()),
    attempt: |locker, name| asked(locker.semaphore(name, 1).try_acquire()),
    ..LOCK
};

pub(crate) const SEMAPHORE: Kind =
    Kind { name: "semaphore", java: "semaphore", ours: "semaphore", options: "&semaphore=counter", ..PERMIT };

impl Kind {
    /// A command for Java.
    pub(crate) fn tell(self, verb: &str, name: &str, more: &str) -> String {
        format!("{verb} {} {name} {more}", self.java)
    }
}

fn held(taking: impl Future<Output = Result<Guard>> + Send + 'static) -> Soon<Held> {
    Box::pin(async move { Box::new(taking.await.expect("taken")) as _ })
}

fn asked(asking: impl Future<Output = Result<Option<Guard>>> + Send + 'static) -> Soon<Option<Held>> {
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
