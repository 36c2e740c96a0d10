//! A lock of some kind: to the rest of `run` they are all the same.

use std::cell::Cell;
use std::time::Duration;

use tenure::backend::State;
use tenure::{Guard, Locker, Mutex, RwLock, Semaphore};

use crate::output;
use crate::plan::{Job, Kind, Patience};

/// What a job waits for.
pub(super) struct Lock {
    locker: Locker,
    lock: Any,
    /// How the places in line of this process begin.
    ours: String,
    told_number: Cell<bool>,
}

enum Any {
    Mutex(Mutex),
    Read(RwLock),
    Write(RwLock),
    Permit(Semaphore, u32),
}

/// The terms that a job has for a lock of whatever type.
macro_rules! on_terms {
    ($lock:expr, $job:expr) => {{
        let mut lock = $lock;
        if let Some(lease) = $job.lease {
            lock = lock.lease(lease);
        }
        if let Some(note) = &$job.note {
            lock = lock.note(&**note);
        }
        lock
    }};
}

/// The same call on a lock of whatever type.
macro_rules! each {
    ($any:expr, $lock:ident => $call:expr) => {
        match $any {
            Any::Mutex($lock) => $call,
            Any::Read($lock) | Any::Write($lock) => $call,
            Any::Permit($lock, _) => $call,
        }
    };
}

impl Lock {
    pub(super) fn new(locker: &Locker, job: &Job) -> Self {
        let name = job.name.as_str();
        let lock = match job.kind {
            Kind::Exclusive => Any::Mutex(on_terms!(locker.mutex(name), job)),
            Kind::Fair => Any::Mutex(on_terms!(locker.mutex(name).fair(), job)),
            Kind::Read => Any::Read(on_terms!(locker.rwlock(name), job)),
            Kind::Write => Any::Write(on_terms!(locker.rwlock(name), job)),
            Kind::Permit { of } => Any::Permit(on_terms!(locker.semaphore(name, of), job), of),
        };
        Self { locker: locker.clone(), lock, ours: format!("{}:", locker.client_id()), told_number: Cell::new(false) }
    }

    pub(super) fn locker(&self) -> &Locker {
        &self.locker
    }

    /// Waits as long as asked to. `None`: it was busy all the time.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a place in line behind.
    pub(super) async fn acquire(&self, patience: Patience) -> tenure::Result<Option<Guard>> {
        let wait = match patience {
            // Zero asks once.
            Patience::None => Some(Duration::ZERO),
            Patience::For(wait) => Some(wait),
            Patience::Endless => None,
        };
        match (&self.lock, wait) {
            (Any::Mutex(lock), None) => lock.lock().await.map(Some),
            (Any::Mutex(lock), Some(wait)) => lock.try_lock_for(wait).await,
            (Any::Read(lock), None) => lock.read().await.map(Some),
            (Any::Read(lock), Some(wait)) => lock.try_read_for(wait).await,
            (Any::Write(lock), None) => lock.write().await.map(Some),
            (Any::Write(lock), Some(wait)) => lock.try_write_for(wait).await,
            (Any::Permit(lock, _), None) => lock.acquire().await.map(Some),
            (Any::Permit(lock, _), Some(wait)) => lock.try_acquire_for(wait).await,
        }
    }

    /// Who holds it, and how many wait.
    pub(super) async fn inspect(&self) -> tenure::Result<State> {
        each!(&self.lock, lock => lock.inspect().await)
    }

    /// Which place in line this process has, the next one being 1.
    pub(super) fn place(&self, state: &State) -> Option<usize> {
        state.line.iter().position(|owner| owner.starts_with(&self.ours)).map(|before| before + 1)
    }

    /// Says once if there are more or fewer permits than the job thinks.
    pub(super) async fn tell_number(&self) {
        let Any::Permit(lock, of) = &self.lock else { return };
        if !self.told_number.get()
            && let Ok(state) = lock.inspect().await
            && let Some(wrong) = wrong_number(&state, *of)
        {
            self.told_number.set(true);
            output::say(&wrong);
        }
    }
}

fn wrong_number(state: &State, of: u32) -> Option<String> {
    let known = state.permits.filter(|permits| permits.of != i64::from(of))?.of;
    let name = &state.resource;
    let permits = if known == 1 { "permit" } else { "permits" };
    Some(format!("{name} has {known} {permits}, not {of}; tenure resize {name} {of} changes it"))
}
