use std::time::Duration;
use tenure::*;
#[test]
fn redis() {
    let url = "redis://127.0.0.1:17000";
    let rt = tokio::runtime::Runtime::new().unwrap();
    rt.block_on(async {
        for q in ["", "?layout=plain", "?wake=pubsub"] {
            let l = Locker::connect(&format!("{url}{q}")).await.unwrap();
            let l2 = Locker::connect(&format!("{url}{q}")).await.unwrap();
            eprintln!("{:?}", l.capabilities());
            let g = l.mutex("a").note("hello").lock().await.unwrap();
            assert!(l2.mutex("a").try_lock().await.unwrap().is_none());
            let w = tokio::spawn({
                let l2 = l2.clone();
                async move {
                    let t = std::time::Instant::now();
                    let g = l2.mutex("a").lock().await.unwrap();
                    eprintln!("waited {:?}", t.elapsed());
                    g
                }
            });
            tokio::time::sleep(Duration::from_millis(2500)).await;
            eprintln!("{:?}", l.mutex("a").inspect().await.unwrap());
            eprintln!("{:?}", l.list("").await.unwrap().len());
            let t = std::time::Instant::now();
            g.release().await.unwrap();
            let g2 = w.await.unwrap();
            eprintln!("hand over {:?}", t.elapsed());
            eprintln!("{:?}", l.mutex("a").break_hold().await.unwrap());
            eprintln!("{:?}", g2.release().await);
            let t = std::time::Instant::now();
            for _ in 0..2000 {
                l.mutex("a").lock().await.unwrap().release().await.unwrap();
            }
            eprintln!("{:?} per cycle", t.elapsed() / 2000);
            l.close().await.unwrap();
            l2.close().await.unwrap();
        }
    });
}
