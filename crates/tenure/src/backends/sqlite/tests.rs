//! A client as the engine sees it: which calls are answered at once, and in which order.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::SqliteOptions;
use crate::backend::{Attempt, Backend, Claim, Client, Mode, OwnerIds, Released, Scope};
use crate::clock::{Clock, Drift};
use crate::name::{ClientId, Resource};
use crate::store::{Context, Registry, StoreOptions};

const TIMEOUT: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(30);

fn open(runtime: &Runtime, dir: &TempDir) -> (Arc<dyn Backend>, OwnerIds) {
    let client = Client { id: ClientId::random().unwrap(), about: "test".into() };
    let owners = OwnerIds::new(client.id);
    let (clock, drift, prefix, registry) = (Clock::system(), Drift::DEFAULT, String::new(), Registry::NONE);
    let context = Context { client, clock, timeout: TIMEOUT, lease: LEASE, drift, prefix, registry };
    let opened = runtime.block_on(SqliteOptions::file(dir.path().join("locks.db")).open(context)).unwrap();
    (Arc::clone(opened.backend()), owners)
}

fn claim(owners: &OwnerIds) -> Claim {
    Claim::new(Resource::new("a").unwrap(), owners.next(), Mode::Exclusive, LEASE)
}

#[test]
fn a_lock_is_taken_and_given_back_without_a_wait_and_without_a_runtime() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let (backend, owners) = open(&runtime, &dir);
    let mut at_once = 0;
    for _ in 0..100 {
        let claim = claim(&owners);
        // A machine that is busy elsewhere may take long at any time: then the thread does it.
        let answer = backend.acquire(&claim).now_or_never();
        at_once += usize::from(answer.is_some());
        let answer = answer.unwrap_or_else(|| runtime.block_on(backend.acquire(&claim)));
        assert!(matches!(answer, Ok(Attempt::Granted { .. })), "{answer:?}");
        let answer = backend.release(&claim).now_or_never();
        at_once += usize::from(answer.is_some());
        if let Some(answer) = answer {
            assert!(matches!(answer, Ok(Released::Yes { others_wait: false })), "{answer:?}");
        }
        assert!(matches!(runtime.block_on(backend.release(&claim)), Ok(Released::NotHeld)));
    }
    assert!(at_once > 0);
    runtime.block_on(backend.close()).unwrap();
    assert!(runtime.block_on(backend.acquire(&claim(&owners))).is_err(), "closed");
}

#[test]
fn an_acquire_whose_caller_has_gone_is_not_overtaken_by_its_release() {
    let (runtime, dir) = (Runtime::new().unwrap(), tempfile::tempdir().unwrap());
    let (backend, owners) = open(&runtime, &dir);
    let other = rusqlite::Connection::open(dir.path().join("locks.db")).unwrap();
    other.busy_timeout(TIMEOUT).unwrap();
    for pause in [0, 1, 5, 20].map(Duration::from_millis).into_iter().cycle().take(40) {
        let claim = claim(&owners);
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(backend.acquire(&claim).now_or_never().is_none(), "it waits for the other program");
        // The thread has it by now, or has not.
        std::thread::sleep(pause);
        let release = backend.release(&claim);
        other.execute_batch("COMMIT").unwrap();
        runtime.block_on(release).unwrap();
        let seen = runtime.block_on(backend.inspect(Scope::One(&claim.resource))).unwrap();
        assert!(seen.iter().all(|state| state.holders.is_empty()), "{seen:?}");
    }
}
