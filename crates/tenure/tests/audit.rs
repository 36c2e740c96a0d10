//! Every break leaves an event under `tenure::audit`, whichever API asks for it.

use tenure::Locker;
use tenure_testkit::log::Log;

/// The audit events of what is done with a locker.
fn events<F: Future<Output = tenure::Result<()>>>(work: impl FnOnce(Locker) -> F) -> Vec<String> {
    let log = Log::default();
    let writer = log.clone();
    let events = tracing_subscriber::fmt().with_env_filter("tenure::audit=info").with_ansi(false);
    tracing::subscriber::with_default(events.with_writer(move || writer.clone()).finish(), || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let handle = runtime.handle().clone();
        runtime.block_on(async {
            let locker = Locker::builder().about("the operator").runtime(handle).connect("memory:").await.expect("a locker");
            work(locker).await.expect("all went well");
        });
    });
    let text = log.text();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_break_says_who_broke_what_and_whose_it_was() {
    let mut facts = Vec::new();
    let told = &mut facts;
    let events = events(|locker| async move {
        let mutex = locker.mutex("stock\u{202e}:1").note("the backup");
        let guard = mutex.lock().await?;
        let broken = mutex.break_hold().await?.expect("it was held");
        *told = vec![
            "tenure::audit".to_owned(),
            locker.client_id().to_string(),
            "the operator".to_owned(),
            "stock\\u{202e}:1".to_owned(),
            guard.owner_id().to_string(),
            "the backup".to_owned(),
            format!("tokens=[{}]", guard.token()),
            format!("fence={}", broken.fence),
        ];
        Ok(())
    });
    assert_eq!(events.len(), 1, "{events:?}");
    assert!(facts.iter().all(|fact| events[0].contains(fact)), "{facts:?} in {events:?}");
}

#[test]
fn every_kind_of_lock_and_a_break_of_nothing_are_told_of() {
    let events = events(|locker| async move {
        let (rwlock, semaphore) = (locker.rwlock("a"), locker.semaphore("b", 2));
        let _readers = (rwlock.read().await?, locker.rwlock("a").read().await?);
        let _permit = semaphore.acquire().await?;
        assert!(rwlock.break_hold().await?.is_some() && semaphore.break_hold().await?.is_some());
        assert!(locker.mutex("c").break_hold().await?.is_none());
        Ok(())
    });
    assert_eq!(events.len(), 3, "{events:?}");
    assert!(events[2].contains("was free") && events[2].contains("name=\"c\""), "{events:?}");
}

#[test]
fn a_break_whose_caller_has_gone_is_told_of_too() {
    let events = events(|locker| async move {
        let _guard = locker.mutex("a").lock().await?;
        let mut asked = Box::pin(locker.mutex("a").break_hold());
        // Asked, but nobody waits for the answer.
        drop(tokio::time::timeout(std::time::Duration::ZERO, &mut asked).await);
        drop(asked);
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while !locker.mutex("a").inspect().await?.holders.is_empty() {
            assert!(tokio::time::Instant::now() < end, "it was never broken");
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    assert_eq!(events.len(), 1, "{events:?}");
}
