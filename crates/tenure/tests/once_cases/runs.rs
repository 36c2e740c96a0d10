//! What a ledger does, on every store of records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tenure::once::{Done, Error, Ledger};
use tenure::{Owner, RetryPolicy, Token};
use tokio::sync::Notify;

use super::faulty::{Faulty, Loses};
use super::shelf::Shelf;
use tenure_testkit::locker::must;

/// Work whose effects are counted.
#[derive(Clone, Default)]
struct Work(Arc<AtomicU32>);

impl Work {
    async fn run(self) -> Result<u32, String> {
        let n = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(n)
    }

    fn times(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

fn quick() -> RetryPolicy {
    RetryPolicy { attempts: 3, first_pause: Duration::from_millis(1), longest_pause: Duration::from_millis(5) }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Receipt {
    number: u64,
    for_whom: Option<String>,
}

pub(crate) async fn a_second_call_returns_what_the_first_recorded(shelf: Shelf) {
    let (key, work) = (shelf.key("pay"), Work::default());
    let receipt = Receipt { number: 7, for_whom: Some("Zoë \0 🔒".to_owned()) };
    let charge = |receipt: Receipt| {
        let work = work.clone();
        async move { work.run().await.map(|_| receipt) }
    };
    let ledger = shelf.ledger().await;
    let first = ledger.once(&key).run(charge(receipt.clone())).await.expect("done");
    assert_eq!((&first.value, first.replayed), (&receipt, false));
    // Also over another connection, for another client of the locks.
    for ledger in [ledger, shelf.ledger().await] {
        let other = Receipt { number: 8, for_whom: None };
        let again = ledger.once(&key).run(charge(other)).await.expect("done");
        assert_eq!(again, Done { value: receipt.clone(), replayed: true, token: first.token });
    }
    assert_eq!(work.times(), 1);
    let record = shelf.ledger().await.look(&key).await.expect("looked").expect("there");
    assert_eq!((record.token, record.value::<Receipt>().expect("read")), (first.token, Some(receipt)));
}

pub(crate) async fn twenty_who_ask_at_once_have_it_done_once(shelf: Shelf) {
    let (key, work) = (shelf.key("k"), Work::default());
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let ledger = shelf.ledger().await;
        for _ in 0..5 {
            let (once, work) = (ledger.once(&key), work.clone());
            tasks.spawn(async move { once.run(work.run()).await.expect("done") });
        }
    }
    let done = must("all are answered", tasks.join_all()).await;
    assert_eq!(work.times(), 1);
    assert_eq!((done.len(), done.iter().filter(|done| !done.replayed).count()), (20, 1));
    assert!(done.iter().all(|one| (one.value, one.token) == (1, done[0].token)), "{done:?}");
}

/// Two calls of one owner would re-enter a mutex: here they are two.
pub(crate) async fn an_owner_that_asks_twice_at_once_has_it_done_once(shelf: Shelf) {
    let (ledger, key, work) = (shelf.ledger().await, shelf.key("k"), Work::default());
    let owner = Owner::new();
    let ask = || owner.scope(ledger.once(&key).run(work.clone().run()));
    let (one, two) = tokio::join!(ask(), ask());
    let (one, two) = (one.expect("done"), two.expect("done"));
    assert_eq!((work.times(), one.replayed != two.replayed), (1, true));
    assert_eq!((one.value, one.token), (two.value, two.token));
}

pub(crate) async fn failed_work_is_not_recorded_and_the_next_one_is_told(shelf: Shelf) {
    let (ledger, key) = (shelf.ledger().await, shelf.key("k"));
    let failed = ledger.once(&key).run(async { Err::<u32, _>("out of paper".to_owned()) }).await.expect_err("failed");
    assert!(failed.to_string().contains("out of paper"), "{failed}");
    let Error::Failed { token: first, .. } = failed else { panic!("{failed}") };
    assert_eq!(failed.failure(), Some("out of paper".to_owned()));
    let second = ledger.once(&key).run_with(|attempt| async move {
        assert_eq!(attempt.unfinished(), Some(first));
        assert!(attempt.is_valid() && attempt.token() > first);
        Ok::<u32, String>(2)
    });
    let second = second.await.expect("done");
    assert_eq!((second.value, second.replayed), (2, false));
    let record = ledger.look(&key).await.expect("looked").expect("there");
    assert_eq!((record.token, record.unfinished), (second.token, Some(first)));
}

pub(crate) async fn a_dropped_future_frees_the_lock_and_leaves_its_mark(shelf: Shelf) {
    let (ledger, key) = (shelf.ledger().await, shelf.key("k"));
    let begun = Arc::new(Notify::new());
    let mut run = Box::pin(ledger.once(&key).run({
        let begun = Arc::clone(&begun);
        async move {
            begun.notify_one();
            std::future::pending::<Result<u32, String>>().await
        }
    }));
    tokio::select! {
        _ = &mut run => panic!("it does not end"),
        () = begun.notified() => {}
    }
    drop(run);
    let mark = ledger.look(&key).await.expect("looked").expect("there");
    assert_eq!(mark.result, None);
    // Its lease is longer than anybody here would wait.
    let next = ledger.once(&key).run_with(|attempt| async move { Ok::<_, String>(attempt.unfinished().map(Token::get)) });
    let next = must("the lock is free", next).await.expect("done");
    assert_eq!(next.value, Some(mark.token.get()));
}

pub(crate) async fn who_waits_in_vain_is_told_that_it_is_under_way(shelf: Shelf) {
    let (ledger, key) = (shelf.ledger().await, shelf.key("k"));
    let held = shelf.locker().await.mutex(format!("once:{key}")).lock().await.expect("locked");
    let work = Work::default();
    for wait in [Duration::ZERO, Duration::from_secs(1)] {
        let e = ledger.clone().wait(wait).once(&key).run(work.clone().run()).await.expect_err("busy");
        assert!(matches!(e, Error::Underway { waited, .. } if waited == wait), "{e}");
    }
    assert_eq!(work.times(), 0);
    held.release().await.expect("given back");
}

pub(crate) async fn a_result_of_another_type_is_an_error_and_runs_nothing(shelf: Shelf) {
    let (ledger, key) = (shelf.ledger().await, shelf.key("k"));
    let first = ledger.once(&key).run(async { Ok::<_, String>("text".to_owned()) }).await.expect("done").token;
    let work = Work::default();
    let e = ledger.once(&key).run(work.clone().run()).await.expect_err("not a number");
    assert!(matches!(e, Error::Unreadable { token, .. } if token == first), "{e}");
    assert_eq!(work.times(), 0);
    assert_eq!(ledger.once(&key).run(async { Ok::<_, String>(String::new()) }).await.expect("done").value, "text");
}

pub(crate) async fn at_most_once_refuses_until_the_attempt_is_forgotten(shelf: Shelf) {
    let (ledger, key, work) = (shelf.ledger().await.at_most_once(), shelf.key("k"), Work::default());
    let failed = ledger.once(&key).run(async { Err::<u32, _>("half done".to_owned()) }).await.expect_err("failed");
    let Error::Failed { token: first, .. } = failed else { panic!("{failed}") };
    for _ in 0..2 {
        let e = ledger.once(&key).run(work.clone().run()).await.expect_err("refused");
        assert!(matches!(e, Error::Unfinished { token, .. } if token == first), "{e}");
    }
    assert_eq!(work.times(), 0);
    assert_eq!(ledger.forget(&key, first).await.expect("asked"), None);
    assert_eq!(ledger.once(&key).run(work.clone().run()).await.expect("done").value, 1);
    assert_eq!(ledger.once(&key).run(work.clone().run()).await.expect("done").value, 1);
}

pub(crate) async fn lost_replies_are_asked_for_again(shelf: Shelf) {
    let (locker, work) = (shelf.locker().await, Work::default());
    // As many as are lost below.
    for loses in [Loses::Replies, Loses::Questions] {
        let key = shelf.key(&format!("{loses:?}"));
        let failed = Ledger::new(&locker, shelf.records().await).once(&key).run(async { Err::<u32, _>(String::new()) }).await;
        let Err(Error::Failed { token: first, .. }) = failed else { panic!("it failed") };
        let ledger = Ledger::new(&locker, Faulty::new(shelf.records().await, loses, 2, 2)).retry(quick());
        let done = ledger.once(&key).run_with(|attempt| {
            // Who asks again is told the same: not that it is itself the one that is unfinished.
            assert_eq!(attempt.unfinished(), Some(first));
            work.clone().run()
        });
        assert!(!done.await.expect("done").replayed);
        assert!(ledger.once(&key).run(work.clone().run()).await.expect("done").replayed);
    }
    assert_eq!(work.times(), 2);
}

pub(crate) async fn what_cannot_be_begun_is_not_run(shelf: Shelf) {
    let (locker, key, work) = (shelf.locker().await, shelf.key("k"), Work::default());
    let ledger = Ledger::new(&locker, Faulty::new(shelf.records().await, Loses::Questions, 3, 0)).retry(quick());
    let e = ledger.once(&key).run(work.clone().run()).await.expect_err("not begun");
    assert!(matches!(&e, Error::NotBegun { cause, .. } if cause.is_transient()), "{e}");
    assert_eq!(work.times(), 0);
    assert_eq!(must("the lock is free", ledger.once(&key).run(work.clone().run())).await.expect("done").value, 1);
}

pub(crate) async fn what_cannot_be_recorded_says_so_and_has_the_value(shelf: Shelf) {
    let (locker, key, work) = (shelf.locker().await, shelf.key("k"), Work::default());
    let ledger = Ledger::new(&locker, Faulty::new(shelf.records().await, Loses::Questions, 0, 3)).retry(quick());
    let e = ledger.once(&key).run(work.clone().run()).await.expect_err("not recorded");
    assert!(e.to_string().contains("may be done again"), "{e}");
    let Error::Unrecorded { token: first, .. } = e else { panic!("{e}") };
    assert_eq!(e.value(), Some(1));
    let next = ledger.once(&key).run_with(|attempt| {
        assert_eq!(attempt.unfinished(), Some(first));
        work.clone().run()
    });
    assert_eq!(next.await.expect("done").value, 2);
}

pub(crate) async fn work_is_stopped_when_the_lock_is_lost_and_the_next_one_is_told(shelf: Shelf) {
    let key = shelf.key("k");
    let ledger = shelf.ledger().await.lease(Duration::from_secs(3));
    let begun = Arc::new(Notify::new());
    let stopped = tokio::spawn(ledger.once(&key).run({
        let begun = Arc::clone(&begun);
        async move {
            begun.notify_one();
            std::future::pending::<Result<u32, String>>().await
        }
    }));
    must("it has begun", begun.notified()).await;
    let broken = shelf.locker().await.mutex(format!("once:{key}")).break_hold().await.expect("broken").expect("held");
    let e = must("it is told", stopped).await.expect("no panic").expect_err("stopped");
    assert!(matches!(&e, Error::Stopped { lost, .. } if Some(lost.token) == broken.holders[0].token), "{e}");
    let next = ledger.once(&key).run_with(|attempt| async move { Ok::<_, String>(attempt.unfinished().map(Token::get)) });
    assert_eq!(next.await.expect("done").value, broken.holders[0].token.map(Token::get));
}

pub(crate) async fn who_was_overtaken_is_told_that_it_was_done_by_two(shelf: Shelf) {
    let key = shelf.key("k");
    let locker = shelf.locker().await;
    let slow = Ledger::new(&locker, shelf.records().await).lease(Duration::from_secs(600));
    let (begun, (go_on, told)) = (Arc::new(Notify::new()), std::sync::mpsc::channel());
    // On a thread of its own, which it blocks: it takes no step at which it could be told that the lock is lost.
    let overtaken = tokio::task::spawn_blocking({
        let (begun, work) = (Arc::clone(&begun), slow.once(&key));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        move || {
            runtime.block_on(work.run(async move {
                begun.notify_one();
                told.recv().expect("told to go on");
                Ok::<_, String>(1_u32)
            }))
        }
    });
    must("it has begun", begun.notified()).await;
    shelf.locker().await.mutex(format!("once:{key}")).break_hold().await.expect("broken").expect("held");
    let other = shelf.ledger().await;
    let winner = other.once(&key).run(async { Ok::<_, String>(2) }).await.expect("done");
    go_on.send(()).expect("it waits");
    let e = must("it ends", overtaken).await.expect("no panic").expect_err("too late");
    assert!(e.to_string().contains("done twice"), "{e}");
    let Error::DoneTwice { stale, value } = e else { panic!("{e}") };
    assert_eq!((value, stale.seen, stale.resource), (1, winner.token, key.clone()));
    assert!(stale.token < stale.seen);
    assert_eq!((slow.stats().stale, locker.stats().stale), (1, 1));
    assert_eq!((other.stats().accepted, other.stats().stale), (1, 0));
    assert_eq!(other.once(&key).run(async { Ok::<_, String>(3) }).await.expect("done").value, 2);
}

pub(crate) async fn results_are_forgotten_by_age_and_old_ones_deleted_by_the_way(shelf: Shelf) {
    let (key, work) = (shelf.key("k"), Work::default());
    let ledger = shelf.ledger().await.keep(Duration::from_millis(50));
    assert_eq!(ledger.once(&key).run(work.clone().run()).await.expect("done").value, 1);
    let gone = async {
        while ledger.look(&key).await.expect("looked").is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    must("its time is up", gone).await;
    let again = ledger.clone().keep(Duration::from_secs(60)).once(&key).run(work.clone().run()).await.expect("done");
    assert_eq!((again.value, again.replayed), (2, false));
}
