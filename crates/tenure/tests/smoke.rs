use std::time::Duration;
use tenure::*;
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn kept_alive() {
    let clock = tenure::clock::Clock::for_tests();
    let l = Locker::builder().clock(clock.clone()).runtime(tokio::runtime::Handle::current()).connect("memory:").await.unwrap();
    let g = l.mutex("a").lock().await.unwrap();
    assert!(l.mutex("a").try_lock().await.unwrap().is_none());
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(g.is_valid());
    let w = tokio::spawn({
        let l = l.clone();
        async move { l.mutex("a").lock().await.unwrap().token() }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let t = g.token();
    g.release().await.unwrap();
    assert!(w.await.unwrap() > t);
    let g = l.mutex("a").lease_fixed(Duration::from_secs(5)).lock().await.unwrap();
    let lost = g.lost().await;
    eprintln!("{lost}");
    let g = l.mutex("a").max_hold(Duration::from_secs(50)).lock().await.unwrap();
    let lost = g.lost().await;
    eprintln!("{lost}");
    eprintln!("{:?}", l.stats());
    l.close().await.unwrap();
}
#[test]
fn threads() {
    let rt = tokio::runtime::Runtime::new().unwrap();
    let l = rt.block_on(Locker::connect("memory:")).unwrap();
    let t = std::time::Instant::now();
    rt.block_on(async {
        for _ in 0..10000 {
            l.mutex("a").lock().await.unwrap().release().await.unwrap();
        }
    });
    eprintln!("{:?} per cycle", t.elapsed() / 10000);
    let t = std::time::Instant::now();
    rt.block_on(async {
        let mut js = tokio::task::JoinSet::new();
        for _ in 0..1000 {
            let l = l.clone();
            js.spawn(async move {
                for _ in 0..10 {
                    drop(l.mutex("a").lock().await.unwrap());
                }
            });
        }
        while js.join_next().await.is_some() {}
    });
    eprintln!("{:?} per hand-over", t.elapsed() / 10000);
    eprintln!("{:?}", l.stats());
}
