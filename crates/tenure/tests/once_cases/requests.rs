//! Tests that need no server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::Duration;

use tenure::once::{Error, Finished, Key, Ledger, MemoryRecords, OnceTable, Records};
use tenure::{Error as Refused, Locker, Token};

use super::faulty::{Faulty, Loses};
use tenure_testkit::eventually;
use tenure_testkit::locker::block_on;

fn ledger(locker: &Locker) -> Ledger {
    Ledger::new(locker, Arc::new(MemoryRecords::default()))
}

pub(crate) fn wrong_requests_are_refused_with_a_reason() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let work = async || -> Result<u32, String> { panic!("not run") };
        let long = "x".repeat(Key::MAX_BYTES + 1);
        for key in ["", &long] {
            let e = ledger(&locker).once(key).run(work()).await.expect_err("no key");
            assert!(matches!(&e, Error::NotBegun { cause: Refused::Config { .. }, .. }), "{e}");
            assert!(e.to_string().contains("1 to 507 bytes") && e.to_string().len() < 200, "{e}");
            assert!(matches!(ledger(&locker).look(key).await, Err(Refused::Config { .. })));
            assert!(matches!(OnceTable::default().claim(key), Err(Refused::Config { .. })));
        }
        for keep in [Duration::ZERO, Duration::from_micros(999), Duration::MAX] {
            let e = ledger(&locker).keep(keep).once("k").run(work()).await.expect_err("out of range");
            assert!(e.to_string().contains("1ms to 100 years"), "{e}");
            assert!(matches!(OnceTable::default().keep(keep).claim("k"), Err(Refused::Config { .. })));
        }
        let e = ledger(&locker).lease(Duration::ZERO).once("k").run(work()).await.expect_err("no lease");
        assert!(matches!(&e, Error::NotBegun { cause: Refused::Config { .. }, .. }), "{e}");
        assert!(matches!(OnceTable::named("a; drop table b"), Err(Refused::Config { .. })));
        // What JSON cannot carry is known when it is done.
        let odd = std::collections::HashMap::from([((1, 2), 3)]);
        let e = ledger(&locker).once("k").run(async { Ok::<_, String>(odd.clone()) }).await.expect_err("no text as key");
        assert_eq!(e.value(), Some(odd));
        locker.close().await.expect("closed");
        let e = ledger(&locker).once("k").run(work()).await.expect_err("closed");
        assert!(matches!(&e, Error::NotBegun { cause: Refused::Closed, .. }), "{e}");
    });
}

/// An executor without timers or anything else.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn any_executor_will_do() {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut all = Box::pin(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let ledger = ledger(&locker).wait(Duration::from_millis(20));
        let held = locker.mutex("once:k").lock().await.expect("locked");
        let e = ledger.once("k").run(async { Ok::<_, String>(1) }).await.expect_err("busy");
        assert!(matches!(e, Error::Underway { .. }), "{e}");
        held.release().await.expect("given back");
        assert_eq!(ledger.once("k").run(async { Ok::<_, String>(1) }).await.expect("done").value, 1);
    });
    while all.as_mut().poll(&mut context) == Poll::Pending {
        std::thread::park_timeout(Duration::from_secs(30));
    }
}

pub(crate) fn the_first_of_many_calls_sweeps_so_that_nobody_has_to() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let records = Arc::new(MemoryRecords::default());
        let key = Key::new("over").expect("a key");
        let keep = Duration::from_millis(1);
        assert_eq!(records.finish(&key, Token::new(1), b"1", keep).await.expect("asked"), Finished::Recorded);
        tokio::time::sleep(keep * 2).await;
        let counted = Faulty::new(Arc::clone(&records) as Arc<dyn Records>, Loses::Replies, 0, 0);
        let ledger = Ledger::new(&locker, Arc::clone(&counted) as Arc<dyn Records>);
        for n in 0..64 {
            ledger.clone().once(format!("{n}")).run(async { Ok::<_, String>(n) }).await.expect("done");
            eventually("the first one sweeps", || counted.sweeps.load(Ordering::SeqCst) == 1);
        }
        assert_eq!(ledger.sweep().await.expect("swept"), 0, "it was swept by the way");
        ledger.once("another").run(async { Ok::<_, String>(1) }).await.expect("done");
        eventually("and one of many after it", || counted.sweeps.load(Ordering::SeqCst) == 3);
    });
}

pub(crate) fn threads_have_a_form_of_their_own() {
    let locker = tenure::blocking::Locker::connect("memory:").expect("connected");
    let ledger = tenure::blocking::Ledger::from(self::ledger(locker.as_async()));
    let failed = ledger.once("k").run(|_| Err::<u32, _>("no paper"));
    let Err(Error::Failed { token, error: "no paper", .. }) = failed else { panic!("{failed:?}") };
    let threads: Vec<_> = (0..10)
        .map(|n| {
            let once = ledger.once("k");
            std::thread::spawn(move || {
                once.run(|attempt| {
                    assert!(attempt.unfinished() == Some(token) && attempt.is_valid());
                    Ok::<u32, String>(n)
                })
            })
        })
        .collect();
    let done: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic").expect("done")).collect();
    assert_eq!(done.iter().filter(|done| !done.replayed).count(), 1);
    assert!(done.iter().all(|one| one.value == done[0].value));
    // Work may lock by itself, which is not allowed inside of async code.
    let nested = ledger.once("outer").run(|_| ledger.once("k").run(|_| Ok::<u32, String>(100)).map(|inner| inner.value));
    assert_eq!(nested.expect("done").value, done[0].value);
    let inside = block_on(async { ledger.once("k").run(|_| Ok::<u32, String>(1)) });
    assert!(matches!(&inside, Err(Error::NotBegun { cause: Refused::Misuse(_), .. })), "{inside:?}");
    assert!(matches!(ledger.once("").run(|_| Ok::<u32, String>(1)), Err(Error::NotBegun { .. })));
}

pub(crate) fn values_are_in_no_debug_output() {
    block_on(async {
        let locker = Locker::connect("memory:").await.expect("connected");
        let ledger = ledger(&locker);
        ledger.once("k").run(async { Ok::<_, String>("secret".to_owned()) }).await.expect("done");
        let record = ledger.look("k").await.expect("looked");
        let e = Error::<_, String>::DoneTwice {
            stale: tenure::fence::Stale { resource: "k".into(), token: tenure::Token::new(1), seen: tenure::Token::new(2) },
            value: "secret",
        };
        let shown = format!("{record:?} {e:?} {ledger:?}");
        assert!(shown.contains("done: true") && !shown.contains("secret"), "{shown}");
    });
}
