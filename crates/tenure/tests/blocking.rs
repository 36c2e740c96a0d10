//! The facade for threads.
#![cfg(feature = "blocking")]

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tenure::blocking::Locker;
use tenure::{Error, LostReason};

fn locker() -> Locker {
    Locker::connect("memory:").expect("connected")
}

#[test]
fn a_thread_reenters_and_another_does_not() {
    let locker = locker();
    let outer = locker.mutex("a").lock().expect("locked");
    let inner = locker.mutex("a").try_lock().expect("asked").expect("re-entered");
    assert_eq!((outer.token(), outer.hold_count()), (inner.token(), 2));
    let other = locker.clone();
    let busy = std::thread::spawn(move || other.mutex("a").try_lock().expect("asked").is_none());
    assert!(busy.join().expect("no panic"));
    drop(outer);
    inner.release().expect("given back");
    assert!(locker.mutex("a").inspect().expect("inspected").holders.is_empty());
}

#[test]
fn a_thread_may_lock_in_its_last_moment() {
    /// Locks when its thread ends.
    struct Late(Locker, Sender<Result<bool, Error>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let got = self.0.mutex("a").try_lock_for(Duration::from_secs(20)).map(|got| got.is_some());
            drop(self.1.send(got));
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }
    let (locker, (told, answer)) = (locker(), channel());
    let thread = std::thread::spawn(move || {
        LATE.set(Some(Late(locker.clone(), told)));
        // Whom this thread is for the lock is known after that, and forgotten before.
        drop(locker.mutex("b").lock().expect("locked"));
    });
    // A panic there would end the process.
    assert!(matches!(answer.recv_timeout(Duration::from_secs(30)), Ok(Ok(true))));
    thread.join().expect("no panic");
}

#[test]
fn threads_exclude_each_other() {
    let locker = locker();
    let counter = Arc::new(AtomicU64::new(0));
    let threads = (0..8).map(|_| {
        let (locker, counter) = (locker.clone(), Arc::clone(&counter));
        std::thread::spawn(move || {
            for _ in 0..50 {
                let guard = locker.mutex("a").lock().expect("locked");
                let seen = counter.load(Ordering::SeqCst);
                std::thread::yield_now();
                counter.store(seen + 1, Ordering::SeqCst);
                drop(guard);
            }
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("no panic");
    }
    assert_eq!(counter.load(Ordering::SeqCst), 400);
}

#[test]
fn a_wait_can_be_limited_and_a_loss_waited_for() {
    let locker = locker();
    let guard = locker.mutex("a").lease_fixed(Duration::from_millis(300)).lock().expect("locked");
    let other = locker.clone();
    let none = std::thread::spawn(move || other.mutex("a").try_lock_for(Duration::from_millis(20)).expect("asked").is_none());
    assert!(none.join().expect("no panic"));
    assert_eq!(guard.lost().expect("waited").reason, LostReason::LeaseEnded);
    assert!(matches!(guard.release(), Err(Error::Lost(_))));
}

#[test]
fn inside_async_code_it_is_an_error_and_no_deadlock() {
    let locker = locker();
    let refused = |locker: &Locker| matches!(locker.mutex("a").lock(), Err(Error::Misuse(_)));
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let single = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for runtime in [&multi, &single] {
        assert!(runtime.block_on(async { refused(&locker) }), "in block_on");
        let (one, other) = (locker.clone(), locker.clone());
        assert!(runtime.block_on(async { tokio::spawn(async move { refused(&one) }).await.expect("no panic") }), "in a task");
        let fine = runtime
            .block_on(async { tokio::task::spawn_blocking(move || other.mutex("a").lock().is_ok()).await.expect("no panic") });
        assert!(fine, "in spawn_blocking");
        let _entered = runtime.enter();
        assert!(locker.mutex("a").lock().is_ok(), "on a thread that has only entered the runtime");
    }
}

#[test]
fn inside_of_an_unconstrained_task_it_is_an_error_too() {
    let locker = locker();
    let refused = |locker: &Locker| matches!(locker.mutex("a").lock(), Err(Error::Misuse(_)));
    let multi = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
    let single = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for runtime in [&multi, &single] {
        let one = locker.clone();
        let task = runtime
            .block_on(async { tokio::spawn(tokio::task::unconstrained(async move { refused(&one) })).await.expect("no panic") });
        assert!(task, "in a task");
    }
    assert!(single.block_on(tokio::task::unconstrained(async { refused(&locker) })), "in block_on");
    // Here the thread blocks nobody but itself, and no panic tells it that it does.
    assert!(multi.block_on(tokio::task::unconstrained(async { locker.mutex("a").lock().is_ok() })));
}

#[test]
fn a_guard_that_has_left_its_job_is_not_entered_by_the_next_job_on_that_thread() {
    let locker = locker();
    // One thread for all jobs, so that they meet on it.
    let pool = tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().expect("a runtime");
    pool.block_on(async {
        let job = |locker: &Locker| {
            let locker = locker.clone();
            tokio::task::spawn_blocking(move || locker.mutex("a").try_lock().expect("asked").map(|guard| guard.into_send()))
        };
        let first = job(&locker).await.expect("no panic").expect("free");
        let second = job(&locker).await.expect("no panic");
        assert!(second.is_none(), "two jobs hold one lock: {first:?} {second:?}");
        assert_eq!(first.hold_count(), 1);
        tokio::task::spawn_blocking(move || first.release()).await.expect("no panic").expect("given back");
        drop(job(&locker).await.expect("no panic").expect("free again"));
    });
}

#[test]
fn a_hold_that_two_threads_share_is_entered_by_neither() {
    let locker = locker();
    let guard = locker.mutex("a").lock().expect("locked");
    let (shares, shared) = std::sync::mpsc::channel();
    let busy = std::thread::scope(|scope| {
        let (done, until_done) = std::sync::mpsc::channel::<()>();
        scope.spawn({
            let guard = &guard;
            move || {
                let also = guard.reenter().expect("held");
                shares.send(()).expect("it waits");
                until_done.recv().expect_err("nothing is said");
                drop(also);
            }
        });
        shared.recv().expect("shared");
        let busy = locker.mutex("a").try_lock().expect("asked").is_none();
        drop(done);
        busy
    });
    assert!(busy, "the other thread may be at work under it");
    guard.release().expect("given back");
    assert!(locker.mutex("a").try_lock().expect("asked").is_some());
}

#[test]
fn the_check_for_async_code_takes_no_steps_from_the_task() {
    let locker = locker();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        assert!(locker.mutex("a").lock().is_err());
        assert!(tokio::task::coop::has_budget_remaining());
    });
}

#[test]
fn threads_read_together_and_none_upgrades() {
    let locker = Locker::connect("memory:").unwrap();
    let lock = locker.rwlock("a");
    let reader = lock.read().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(lock.read().unwrap())).join().unwrap();
        scope.spawn(|| assert!(lock.try_write().unwrap().is_none())).join().unwrap();
    });
    assert_eq!(lock.read().unwrap().hold_count(), 2, "a thread re-enters");
    assert!(matches!(lock.write(), Err(tenure::Error::Misuse(_))));
    reader.release().unwrap();
    let writer = lock.write().unwrap();
    let reader = lock.downgrade(writer).unwrap();
    std::thread::scope(|scope| scope.spawn(|| assert!(lock.try_read().unwrap().is_some())).join().unwrap());
    drop(reader);
}

#[test]
fn a_thread_may_take_several_permits_one_by_one() {
    let locker = Locker::connect("memory:").unwrap();
    let semaphore = locker.semaphore("a", 2);
    let permits = [semaphore.acquire().unwrap(), semaphore.acquire().unwrap()];
    assert!(semaphore.try_acquire().unwrap().is_none(), "not re-entrant");
    semaphore.resize(3).unwrap();
    drop((semaphore.try_acquire().unwrap().unwrap(), permits));
    let latch = locker.latch("b");
    assert!(latch.set(1).unwrap());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| latch.wait().unwrap());
        assert_eq!((latch.count().unwrap(), latch.count_down().unwrap()), (1, 0));
        waiting.join().unwrap();
    });
}

#[test]
fn groups_and_elections_have_a_facade_too() {
    let locker = Locker::builder().lease(Duration::from_secs(20)).about("threads").connect("memory:threads").expect("connected");
    let other = Locker::connect("memory:threads").expect("connected");
    let held = locker.mutex("a").lock().expect("locked");
    // This thread has one of them already.
    let both = locker.multi(["a", "b"]).try_lock().expect("asked").expect("re-entered");
    assert!(both.is_valid() && both.check().is_ok());
    assert_eq!(both.token("a"), Some(held.token()));
    assert!(other.multi(["b", "c"]).try_lock().expect("asked").is_none());
    assert!(other.multi(["b", "c"]).try_lock_for(Duration::from_millis(5)).expect("asked").is_none());
    drop(held);
    assert!(other.mutex("a").try_lock().expect("asked").is_none(), "the group still has it");
    both.release().expect("given back");
    other.multi(["a", "b", "c"]).lock().expect("locked").release().expect("given back");

    let stripes = locker.striped("s", 2);
    let ((one, first), (two, _second)) = (stripes.lock_any().expect("locked"), stripes.lock_any().expect("locked"));
    assert_ne!(one, two);
    assert!(stripes.try_lock_any().expect("asked").is_none());
    assert!(other.striped("s", 2).stripe(one).expect("a stripe").try_lock().expect("asked").is_none());
    first.release().expect("given back");
    let again = stripes.try_lock_any_for(Duration::from_secs(20)).expect("asked").expect("one is free");
    assert_eq!((again.0, stripes.count(), stripes.index("foobar")), (one, 2, 0));

    let election = locker.election("e");
    let term = election.campaign("me").expect("elected");
    assert!(other.election("e").try_campaign("you").expect("asked").is_none());
    assert_eq!(other.election("e").leader().expect("asked").expect("somebody leads").term, Some(term.token()));
    term.release().expect("resigned");
    assert!(election.leader().expect("asked").is_none());
    assert_eq!(locker.as_async().client_id(), locker.client_id());
    assert!(locker.stats().granted > 5 && locker.capabilities().token_blocks);
    locker.close().expect("closed");
}
