//! For tests of your own: a store in which locks are lost when you say so, so that the code that handles a loss runs in milliseconds.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> tenure::Result<()> {
//! # tokio::time::pause();
//! use tenure::testing::TestStore;
//!
//! let store = TestStore::new();
//! let locker = store.locker()?; // as a process of its own; each call makes another
//! let guard = locker.mutex("stock:1001").lock().await?;
//! let work = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
//!
//! store.lose("stock:1001").await?; // now
//! assert!(work.await.expect("no panic").is_err()); // it was told, and stopped
//! # Ok(())
//! # }
//! ```
//!
//! With `#[tokio::test(start_paused = true)]` leases of half a minute end in no time: tokio's clock runs ahead while all tasks wait, and
//! the lockers made here follow it. `docs/testing.md` tests a web service.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::backend::{Backend, Call, Client, Layer, Opened};
use crate::backends::memory::Memory;
use crate::clock::Clock;
use crate::error::{Error, Fault, Result};
use crate::locker::{Builder, Locker};
use crate::name::{ClientId, Resource};

/// A store for tests: in memory, with time and faults that a test controls.
#[derive(Debug, Clone)]
pub struct TestStore {
    memory: Arc<Memory>,
    clock: Clock,
    away: Arc<AtomicBool>,
    /// Whose calls do not arrive, by how many pauses.
    still: Arc<Mutex<HashMap<ClientId, watch::Sender<u32>>>>,
}

impl Default for TestStore {
    fn default() -> Self {
        Self::new()
    }
}

impl TestStore {
    /// An empty store.
    ///
    /// # Panics
    /// If the system has no random bits.
    #[must_use]
    pub fn new() -> Self {
        let clock = Clock::for_tests();
        let client = Client { id: ClientId::random().expect("random bits"), about: "a test".into() };
        let memory = Arc::new(Memory::new(client, clock.clone()));
        Self { memory, clock, away: Arc::default(), still: Arc::default() }
    }

    /// A locker of this store, as a process of its own has one. It uses the current runtime and its clock.
    pub fn locker(&self) -> Result<Locker> {
        self.locker_with(Locker::builder())
    }

    /// As [`locker`](Self::locker), with options of your own.
    pub fn locker_with(&self, builder: Builder) -> Result<Locker> {
        let runtime = Handle::try_current().map_err(|_| {
            Error::misuse("a locker of a test", "was asked for outside of a runtime", "inside of one, as #[tokio::test] is")
        })?;
        let id = ClientId::random()?;
        let (stop, stopped) = watch::channel(0);
        self.still.lock().unwrap_or_else(PoisonError::into_inner).insert(id, stop);
        let memory = Arc::new(self.memory.client(Client { id, about: "a test".into() }));
        let store = Opened::from(memory).layered(Moods { away: Arc::clone(&self.away), stopped });
        builder.clock(self.clock.clone()).runtime(runtime).backend_of(store, id)
    }

    /// Takes a lock from its holder, as an operator's `break` does: the holder is told at once. False if it was free.
    pub async fn lose(&self, name: impl AsRef<str>) -> Result<bool> {
        Ok(self.memory.break_hold(&Resource::new(name.as_ref())?).await?.is_some())
    }

    /// From now on the store answers no call, until [`come_back`](Self::come_back): calls fail as those to a server that is down. Holds
    /// are lost at their deadlines.
    pub fn go_away(&self) {
        self.away.store(true, Ordering::SeqCst);
    }

    /// The store answers again, and has kept its data.
    pub fn come_back(&self) {
        self.away.store(false, Ordering::SeqCst);
    }

    /// A locker stands still for so long, as a process does that is stopped or swapped out: nothing that it asks arrives, so nothing is
    /// renewed. All others go on. Longer than a lease, and its locks are lost, and may be others' by then. Dropped, the pause is over.
    ///
    /// # Panics
    /// If the locker is not one of this store: a test that stops no locker would show nothing.
    pub async fn stand_still(&self, locker: &Locker, pause: Duration) {
        let stop = self.still.lock().unwrap_or_else(PoisonError::into_inner).get(&locker.client_id()).cloned();
        let stop = stop.expect("a locker of this store");
        stop.send_modify(|pauses| *pauses += 1);
        let _over = Pause(stop);
        tokio::time::sleep(pause).await;
    }

    /// The machine sleeps for so long: no timer notices, and every lease has run on.
    pub fn suspend(&self, pause: Duration) {
        self.clock.jump(pause);
    }
}

/// One pause of a locker. Its end is its drop.
struct Pause(watch::Sender<u32>);

impl Drop for Pause {
    fn drop(&mut self) {
        self.0.send_modify(|pauses| *pauses -= 1);
    }
}

/// What a test says of the calls of one locker.
#[derive(Debug)]
struct Moods {
    away: Arc<AtomicBool>,
    stopped: watch::Receiver<u32>,
}

impl Layer for Moods {
    async fn around<T: Send>(&self, call: Call<'_>, inner: impl Future<Output = Result<T>> + Send) -> Result<T> {
        // Its end is that of the store, which then stops nobody.
        drop(self.stopped.clone().wait_for(|pauses| *pauses == 0).await);
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::unavailable("test", call.doing(), Fault::Connection, "the test has sent the store away"));
        }
        inner.await
    }
}
