//! A lock of any kind. The rest of `run` treats all kinds alike.

use std::cell::Cell;

use tenure::backend::State;
use tenure::{AnyLock, Guard, Locker, Mode};

use crate::output;
use crate::plan::{Job, Patience};

/// What a job waits for.
pub(super) struct Lock {
    locker: Locker,
    lock: AnyLock,
    /// What the owners of this process begin with.
    ours: String,
    told_number: Cell<bool>,
}

impl Lock {
    pub(super) fn new(locker: &Locker, job: &Job) -> Self {
        let mut lock = locker.any_lock(&job.name, job.mode);
        if let Some(lease) = job.lease {
            lock = lock.lease(lease);
        }
        if let Some(note) = &job.note {
            lock = lock.note(&**note);
        }
        Self { locker: locker.clone(), lock, ours: format!("{}:", locker.client_id()), told_number: Cell::new(false) }
    }

    pub(super) fn locker(&self) -> &Locker {
        &self.locker
    }

    /// Waits as long as asked to. `None`: it was busy all the time.
    ///
    /// # Cancel safety
    /// Safe: dropping the future leaves neither a lock nor a queue position behind.
    pub(super) async fn acquire(&self, patience: Patience) -> tenure::Result<Option<Guard>> {
        match patience {
            Patience::None => self.lock.try_acquire().await,
            Patience::For(wait) => self.lock.try_acquire_for(wait).await,
            Patience::Endless => self.lock.acquire().await.map(Some),
        }
    }

    /// Who holds it, and how many wait.
    pub(super) async fn inspect(&self) -> tenure::Result<State> {
        self.lock.inspect().await
    }

    /// The queue position of this process. The next one to be served is 1.
    pub(super) fn position(&self, state: &State) -> Option<usize> {
        state.queue.iter().position(|owner| owner.starts_with(&self.ours)).map(|before| before + 1)
    }

    /// Says once if there are more or fewer permits than the job thinks.
    pub(super) async fn tell_number(&self) {
        let Mode::Permits { of, .. } = self.lock.mode() else { return };
        if !self.told_number.get()
            && let Ok(state) = self.lock.inspect().await
            && let Some(wrong) = wrong_number(&state, of)
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
