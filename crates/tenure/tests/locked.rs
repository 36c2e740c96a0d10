//! The attribute for functions that run under a lock.
#![cfg(all(feature = "macros", feature = "testing"))]

use std::time::Duration;

use tenure::testing::TestStore;
use tenure::{Error, Locker, Token};

#[derive(Debug, PartialEq, Eq)]
enum Refused {
    Busy,
    Lost,
    Other(String),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        if let Error::Lost(_) = error { Self::Lost } else { Self::Other(error.to_string()) }
    }
}

impl From<std::num::ParseIntError> for Refused {
    fn from(error: std::num::ParseIntError) -> Self {
        Self::Other(error.to_string())
    }
}

struct Service {
    locker: Locker,
}

impl Service {
    /// Attributes, generics and references stay as they are.
    #[tenure::locked(locker = self.locker, key = "order:{id}", wait = "5s", busy = Err(Refused::Busy), guard = hold)]
    async fn pay<T: AsRef<str>>(&self, id: u64, amount: T, takes: Duration) -> Result<(Token, u64), Refused> {
        // The question mark leaves the function, and gives the lock back.
        let amount: u64 = amount.as_ref().parse()?;
        if amount == 0 {
            return Err(Refused::Other("nothing to pay".to_owned()));
        }
        tokio::time::sleep(takes).await;
        Ok((hold.token(), amount))
    }
}

#[tenure::locked(key = "count", wait = "forever")]
async fn count(locker: &Locker, counter: &mut u64) -> tenure::Result<u64> {
    let before = *counter;
    tokio::task::yield_now().await;
    *counter = before + 1;
    assert!(guard.is_valid());
    Ok(*counter)
}

fn service(store: &TestStore) -> Service {
    Service { locker: store.locker().expect("a locker") }
}

const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

#[tokio::test(start_paused = true)]
async fn it_runs_under_the_lock_and_gives_it_back() {
    let store = TestStore::new();
    let service = service(&store);
    let (first, amount) = service.pay(7, "3", SHORT).await.expect("paid");
    let (second, _) = service.pay(7, "3", SHORT).await.expect("paid");
    assert!(second > first && amount == 3);
    assert_eq!(service.pay(7, "0", SHORT).await, Err(Refused::Other("nothing to pay".to_owned())));
    assert!(matches!(service.pay(7, "x", SHORT).await, Err(Refused::Other(_))));
    assert!(service.locker.list("").await.expect("listed").is_empty(), "nothing is left");
    let mut counter = 0;
    for expected in 1..4 {
        assert_eq!(count(&service.locker, &mut counter).await.expect("counted"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn who_comes_second_waits_or_is_told() {
    let store = TestStore::new();
    let (one, other) = (service(&store), service(&store));
    let (paid, waited) = tokio::join!(one.pay(7, "1", SHORT), other.pay(7, "1", SHORT));
    assert!(paid.is_ok() && waited.is_ok(), "{paid:?} {waited:?}");
    let (paid, busy) = tokio::join!(one.pay(7, "1", LONG), other.pay(7, "1", SHORT));
    assert_eq!((paid.is_ok(), busy), (true, Err(Refused::Busy)));
    let (one_order, another) = tokio::join!(one.pay(7, "1", LONG), other.pay(8, "1", SHORT));
    assert!(one_order.is_ok() && another.is_ok(), "the key has the argument in it");
}

#[tokio::test(start_paused = true)]
async fn a_loss_ends_the_body_and_is_the_answer() {
    let store = TestStore::new();
    let service = service(&store);
    let lose = async {
        tokio::time::sleep(SHORT).await;
        store.lose("order:7").await.expect("asked")
    };
    let (paid, lost) = tokio::join!(service.pay(7, "1", LONG), lose);
    assert_eq!((paid, lost), (Err(Refused::Lost), true));
    store.go_away();
    assert!(matches!(service.pay(7, "1", SHORT).await, Err(Refused::Other(_))), "a store that is away is not busy");
}
