//! A turn for every caller, also of other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::slow::{Slow, lockers, store};
use tenure::backend::{Attempt, Backend, Claim, Mode, Queue};
use tenure::{Guard, Locker, Resource};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Locks to write, or alone.
async fn lock(locker: &Locker, write: bool) -> Guard {
    if write { locker.rwlock("a").write().await } else { locker.mutex("a").lock().await }.expect("locked")
}

/// A client gets the lock again and again, while another client has counted its grants.
async fn comes_to_its_turn(locker: &Locker, write: bool, grants: &AtomicU64) {
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(333)).await;
        let before = grants.load(Ordering::SeqCst);
        let got = tokio::time::timeout(Duration::from_secs(60), lock(locker, write)).await;
        let guard = got.expect("it comes to its turn");
        let passed = grants.load(Ordering::SeqCst) - before;
        // A share is a grant and 63 hand-overs. The pauses after them grow: 5, 10, 20 and 40 ms.
        assert!(passed <= 6 * 64, "{passed} grants of the other client came first");
        guard.release().await.expect("given back");
    }
}

#[tokio::test(start_paused = true)]
async fn many_tasks_of_one_client_leave_a_turn_to_one_of_another() {
    for write in [false, true] {
        // The one is farther away than the many, who would be back before it each time.
        let (_, one, many) = lockers(Slow { question_takes: Duration::from_millis(30), ..Slow::default() });
        let (grants, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for _ in 0..40 {
            let (many, grants, stop) = (many.clone(), Arc::clone(&grants), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let guard = lock(&many, write).await;
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.release().await.expect("given back");
                }
            });
        }
        comes_to_its_turn(&one, write, &grants).await;
        stop.store(true, Ordering::SeqCst);
        while tasks.join_next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_back_at_once_leaves_a_turn_to_one_of_another_client() {
    for write in [false, true] {
        // Nobody of its process stands in the queue behind it.
        let (_, far, near) = lockers(Slow { question_takes: Duration::from_millis(30), ..Slow::default() });
        let grants = Arc::new(AtomicU64::new(0));
        let comes_back = tokio::spawn({
            let grants = Arc::clone(&grants);
            async move {
                loop {
                    let guard = lock(&near, write).await;
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.release().await.expect("given back");
                }
            }
        });
        comes_to_its_turn(&far, write, &grants).await;
        comes_back.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_to_others_is_still_had_by_who_has_little_time() {
    let (store, locker, other) = store(Slow { answer_takes: Duration::from_millis(1), ..Slow::default() });
    let owner = other.mutex("b").lock().await.expect("locked").owner_id();
    let held = locker.mutex("a").lock().await.expect("locked");
    // In the queue for half a minute, and never there when it could have the lock.
    let name = Resource::new("a").expect("a name");
    let waits = Claim { queue: Queue::Allowed, ..Claim::new(name, owner, Mode::Exclusive, Duration::from_secs(30)) };
    let busy = store.inner().acquire(&waits).await.expect("asked");
    assert!(matches!(busy, Attempt::Busy { .. }), "{busy:?}");
    held.release().await.expect("given back");
    for i in 0..200 {
        let got = locker.mutex("a").try_lock_for(Duration::from_millis(20)).await.expect("asked");
        got.unwrap_or_else(|| panic!("it was free after {i} times")).release().await.expect("given back");
    }
}

#[tokio::test(start_paused = true)]
async fn others_who_never_come_do_not_slow_down_a_crowd() {
    let mut grants = [0_u64; 2];
    for (says_others_wait, grants) in [false, true].into_iter().zip(&mut grants) {
        let (_, locker, _) = lockers(Slow { says_others_wait, ..Slow::default() });
        let end = Instant::now() + Duration::from_secs(30);
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let locker = locker.clone();
            tasks.spawn(async move {
                for granted in 0.. {
                    let guard = locker.mutex("a").lock().await.expect("locked");
                    if Instant::now() >= end {
                        return granted;
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                    guard.release().await.expect("given back");
                }
                0
            });
        }
        while let Some(granted) = tasks.join_next().await {
            *grants += granted.expect("no panic");
        }
    }
    let [alone, awaited] = grants;
    assert!(awaited > alone / 2, "{awaited} grants while somebody seems to wait, {alone} while nobody does");
}

#[tokio::test(start_paused = true)]
async fn who_has_little_time_is_not_kept_waiting_by_one_that_leaves_the_lock_to_others() {
    let (_, locker, _) = lockers(Slow { says_others_wait: true, ..Slow::default() });
    for round in 0..50 {
        let first = locker.mutex("a").lock().await.expect("locked");
        let patient = tokio::spawn({
            let mutex = locker.mutex("a");
            async move { mutex.lock().await.expect("locked").release().await.expect("given back") }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let within = |ms| locker.mutex("a").try_lock_for(Duration::from_millis(ms));
        // Some wait already when the one before them begins to rest, for up to 640 ms; some come meanwhile.
        let early = tokio::spawn(within(40));
        tokio::time::sleep(Duration::from_millis(1)).await;
        first.release().await.expect("given back");
        tokio::time::sleep(Duration::from_millis(round % 3)).await;
        let late = tokio::spawn(within(20));
        for (which, impatient) in [("early", early), ("late", late)] {
            let got = impatient.await.expect("no panic").expect("asked");
            got.unwrap_or_else(|| panic!("it was free for the {which} one in round {round}"))
                .release()
                .await
                .expect("given back");
        }
        patient.await.expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn who_does_not_wait_asks_for_itself_while_another_task_leaves_the_lock_to_others() {
    let (store, locker, _) = lockers(Slow { says_others_wait: true, ..Slow::default() });
    let mut held = locker.mutex("a").lock().await.expect("locked");
    let mut asked_while_it_rested = 0;
    for round in 0..7 {
        // The pause doubles with every share: 5 ms to 320 ms. With other words each time, so that it is not handed over.
        let next = tokio::spawn(locker.mutex("a").note(format!("{round}")).lock());
        tokio::time::sleep(Duration::from_millis(1)).await;
        held.release().await.expect("given back");
        let asked = store.asked.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(1)).await;
        if store.asked.load(Ordering::SeqCst) == asked {
            asked_while_it_rested += 1;
            let free = locker.mutex("a").try_lock().await.expect("asked");
            free.expect("nobody has it").release().await.expect("given back");
        }
        held = next.await.expect("no panic").expect("locked");
    }
    assert!(asked_while_it_rested > 3, "the next one left it to others {asked_while_it_rested} times");
    // And it is busy for who does not wait while a task of the process has it.
    assert!(locker.mutex("a").try_lock().await.expect("asked").is_none());
    held.release().await.expect("given back");
}

#[test]
fn a_released_lock_is_free_for_who_asks_then() {
    // On several threads: the one who has the answer may be faster than the one who gave it.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..4 {
            let locker = Locker::builder().runtime(handle.clone()).connect("memory:").await.expect("connected");
            tasks.spawn(async move {
                for _ in 0..5_000 {
                    let guard = locker.mutex("a").lock().await.expect("locked");
                    guard.release().await.expect("given back");
                    let again = locker.mutex("a").try_lock().await.expect("asked").expect("its own turn was in the way");
                    again.release().await.expect("given back");
                }
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.expect("no panic");
        }
    });
}
