//! Which types are `Send` and `Sync`. To delete a line here breaks a promise.

use std::fmt::Debug;

use tenure::{
    Builder, Election, Error, Guard, Latch, Leader, Locker, Lost, Multi, MultiGuard, Mutex, Owner, Partition, Partitions, RwLock,
    Semaphore, Serial, Stats, Striped, Watcher,
};

fn is_shared<T: Send + Sync + Debug + 'static>() {}
fn goes<T: Send + 'static>(_: T) {}

#[test]
fn types_are_send_and_sync() {
    is_shared::<Builder>();
    is_shared::<Locker>();
    is_shared::<Mutex>();
    is_shared::<RwLock>();
    is_shared::<Semaphore>();
    is_shared::<Latch>();
    is_shared::<Multi>();
    is_shared::<Striped>();
    is_shared::<Election>();
    is_shared::<tenure::election::Changes>();
    is_shared::<Leader>();
    is_shared::<Partitions>();
    is_shared::<Partition>();
    is_shared::<Serial>();
    is_shared::<Guard>();
    is_shared::<MultiGuard>();
    is_shared::<Watcher>();
    is_shared::<Owner>();
    is_shared::<Error>();
    is_shared::<Lost>();
    is_shared::<Stats>();
}

#[tokio::test]
async fn futures_are_send_and_own_what_they_need() {
    let locker = Locker::connect("memory:").await.expect("connected");
    let wait = std::time::Duration::ZERO;
    goes(locker.mutex("a").lock());
    goes(locker.mutex("a").try_lock());
    goes(locker.mutex("a").try_lock_for(wait));
    goes(locker.mutex("a").inspect());
    goes(locker.mutex("a").break_hold());
    goes(locker.rwlock("a").read());
    goes(locker.rwlock("a").write());
    goes(locker.semaphore("a", 2).acquire());
    goes(locker.latch("a").wait());
    goes(locker.latch("a").wait_for(wait));
    goes(locker.election("a").campaign("me"));
    goes(locker.election("a").leader());
    let guard = locker.mutex("b").lock().await.expect("locked");
    goes(async move {
        guard.run(std::future::ready(())).await.expect("held");
        guard.lost().await;
        guard.release().await
    });
}
