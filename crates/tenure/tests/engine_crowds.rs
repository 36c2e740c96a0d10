//! What the engine promises when many are under way at once: one answer for all, no stale error, no hold lost for another's sake,
//! and a turn for everybody. On a paused clock.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Member, Mode, Queue, Released, Renewal, Scope, Server, State,
};
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::signal::Signal;
use tenure::{ClientId, Error, Fault, Locker, Owner, Resource, Result, Token};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A store with one way in, as slow as it is told to be.
#[derive(Debug)]
struct Slow {
    inner: Memory,
    /// How long a question takes to arrive.
    question_takes: Duration,
    /// How late an answer comes.
    answer_takes: Duration,
    /// How long one claim that is renewed or given back occupies the store, which does one after the other.
    claim_takes: Duration,
    /// When it has done all that it was asked so far.
    done_at: Mutex<Option<Instant>>,
    closing_takes: Duration,
    acquire_fails: AtomicBool,
    acquire_hangs: AtomicBool,
    release_hangs: AtomicBool,
    renew_hangs: AtomicBool,
    renew_panics: AtomicBool,
    /// Says with every release that others wait, who never come.
    says_others_wait: bool,
    asked: AtomicU64,
}

impl Slow {
    fn new(clock: &Clock) -> Self {
        Self {
            inner: Memory::new(client(), clock.clone()),
            question_takes: Duration::ZERO,
            answer_takes: Duration::ZERO,
            claim_takes: Duration::ZERO,
            done_at: Mutex::new(None),
            closing_takes: Duration::ZERO,
            acquire_fails: AtomicBool::new(false),
            acquire_hangs: AtomicBool::new(false),
            release_hangs: AtomicBool::new(false),
            renew_hangs: AtomicBool::new(false),
            renew_panics: AtomicBool::new(false),
            says_others_wait: false,
            asked: AtomicU64::new(0),
        }
    }

    /// Waits until the store has done this, too.
    async fn work(&self, claims: usize) {
        let takes = self.claim_takes * u32::try_from(claims).expect("few");
        if takes.is_zero() {
            return;
        }
        let now = Instant::now();
        let done_at = {
            let mut last = self.done_at.lock().expect("not poisoned");
            let done_at = last.map_or(now, |last| last.max(now)) + takes;
            *last = Some(done_at);
            done_at
        };
        tokio::time::sleep_until(done_at).await;
    }
}

fn client() -> Client {
    Client { id: ClientId::random().expect("random bits"), about: "slow".into() }
}

/// A locker of a store, and one of another client of the same store to which it is fast.
fn lockers(store: Slow, clock: &Clock) -> (Arc<Slow>, Locker, Locker) {
    let over = |backend: Arc<dyn Backend>| Locker::builder().clock(clock.clone()).runtime(Handle::current()).over(backend);
    let other: Arc<dyn Backend> = Arc::new(store.inner.client(client()));
    let store = Arc::new(store);
    let slow: Arc<dyn Backend> = Arc::<Slow>::clone(&store);
    (store, over(slow).expect("a locker"), over(other).expect("a locker"))
}

#[async_trait]
impl Backend for Slow {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn partition(&self, resource: &Resource) -> u32 {
        self.inner.partition(resource)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.acquire_fails.load(Ordering::SeqCst) {
            return Err(Error::unavailable("slow", "acquiring", Fault::Connection, "on purpose"));
        }
        if self.acquire_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(self.question_takes).await;
        let answer = self.inner.acquire(claim).await;
        tokio::time::sleep(self.answer_takes).await;
        answer
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        if self.renew_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        assert!(!self.renew_panics.swap(false, Ordering::SeqCst), "on purpose");
        self.work(claims.len()).await;
        self.inner.renew(claims).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        if self.release_hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.work(1).await;
        let released = self.inner.release(claim).await?;
        let seems_awaited = self.says_others_wait && released != Released::NotHeld;
        Ok(if seems_awaited { Released::Yes { others_wait: true } } else { released })
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.inner.watch(claim).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        self.inner.inspect(scope).await
    }

    async fn break_hold(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        self.inner.break_hold(resource, at_least).await
    }

    async fn introduce(&self, longest: Duration) -> Result<Server> {
        self.inner.introduce(longest).await
    }

    fn session(&self) -> u64 {
        self.inner.session()
    }

    fn members(&self) -> Vec<Member> {
        self.inner.members()
    }

    fn refusal(&self, mode: Mode) -> Error {
        self.inner.refusal(mode)
    }

    async fn close(&self) -> Result<()> {
        tokio::time::sleep(self.closing_takes).await;
        self.inner.close().await
    }
}

const WHILE: Duration = Duration::from_millis(50);

/// What a call may take, unless the builder is told otherwise.
const CALL: Duration = Duration::from_secs(3);

#[tokio::test(start_paused = true)]
async fn an_open_latch_is_open_to_all_who_ask_at_once() {
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { answer_takes: WHILE, ..Slow::new(&clock) }, &clock);
    let asked: Vec<_> = (0..400).map(|_| tokio::spawn(locker.latch("a").wait_within(Duration::ZERO))).collect();
    for one in asked {
        assert!(one.await.expect("no panic").expect("asked"), "it is open");
    }
}

#[tokio::test(start_paused = true)]
async fn one_answer_opens_a_latch_for_all_who_wait() {
    let clock = Clock::for_tests();
    let (store, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::new(&clock) }, &clock);
    assert!(other.latch("a").set(1).await.expect("asked"));
    let waiting: Vec<_> = (0..200).map(|_| tokio::spawn(locker.latch("a").wait_within(Duration::from_secs(2)))).collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(other.latch("a").count_down().await.expect("counted"), 0);
    for one in waiting {
        assert!(one.await.expect("no panic").expect("asked"), "it was opened in time");
    }
    assert!(store.asked.load(Ordering::SeqCst) < 10, "asked {} times", store.asked.load(Ordering::SeqCst));
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_not_shared_with_those_who_came_after_the_question() {
    let clock = Clock::for_tests();
    let (_, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::new(&clock) }, &clock);
    // Open when it is asked for, and set before the answer comes.
    let before = tokio::spawn(locker.latch("a").wait());
    tokio::time::sleep(WHILE / 2).await;
    assert!(other.latch("a").set(1).await.expect("asked"));
    let after = locker.latch("a").wait_within(Duration::from_secs(1)).await;
    assert!(!after.expect("asked"), "it was set before this one asked");
    before.await.expect("no panic").expect("it was open");
}

#[tokio::test(start_paused = true)]
async fn who_comes_to_a_latch_later_is_answered_by_the_store_and_not_by_the_past() {
    let clock = Clock::for_tests();
    let deaf = tenure::backends::faulty::Plan { deaf: true, ..Default::default() };
    let store = Memory::new(client(), clock.clone());
    let other = Arc::new(store.client(client()));
    let deaf: Arc<dyn Backend> = Arc::new(tenure::backends::faulty::Faulty::new(Arc::new(store), deaf));
    let over = |backend| Locker::builder().clock(clock.clone()).runtime(Handle::current()).over(backend).expect("a locker");
    let (locker, other) = (over(deaf), over(other));
    assert!(other.latch("a").set(1).await.expect("asked"));
    let first = tokio::spawn(locker.latch("a").wait());
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(other.latch("a").count_down().await.expect("counted"), 0);
    // No signal fires, and the next poll is seconds away.
    assert!(locker.latch("a").wait_within(Duration::from_millis(100)).await.expect("asked"), "it is open");
    first.await.expect("no panic").expect("the same answer served");
}

#[tokio::test(start_paused = true)]
async fn a_latch_that_stays_closed_is_closed_to_all_whose_time_is_up() {
    let clock = Clock::for_tests();
    let (_, locker, other) = lockers(Slow { answer_takes: WHILE, ..Slow::new(&clock) }, &clock);
    assert!(other.latch("a").set(1).await.expect("asked"));
    let mut waiting = Vec::new();
    for _ in 0..20 {
        waiting.push(tokio::spawn(locker.latch("a").wait_within(Duration::from_secs(1))));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for one in waiting {
        // Who gets the turn of the one that leaves has no time for a question of its own, and needs none.
        let open = one.await.expect("no panic");
        assert!(matches!(open, Ok(false)), "{open:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_latch_of_a_store_that_does_not_answer_is_not_known_to_be_closed() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let waiting: Vec<_> = (0..3).map(|_| tokio::spawn(locker.latch("a").wait_within(WHILE))).collect();
    for one in waiting {
        let error = one.await.expect("no panic").expect_err("nobody knows");
        assert!(error.is_transient(), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_of_a_store_that_does_not_answer_is_not_known_to_be_busy() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let first = tokio::spawn(locker.mutex("a").lock_within(2 * WHILE));
    tokio::time::sleep(WHILE / 2).await;
    let second = locker.mutex("a").lock_within(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    first.await.expect("no panic").expect_err("no answer");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_given_back_is_not_known_to_be_busy() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    let held = locker.mutex("a").lock().await.expect("locked");
    let second = tokio::spawn(locker.mutex("a").lock_within(10 * WHILE));
    tokio::time::sleep(Duration::from_millis(1)).await;
    store.acquire_hangs.store(true, Ordering::SeqCst);
    held.release().await.expect("given back, and confirmed");
    // Nobody holds it when this one comes, and the store does not answer.
    let third = locker.mutex("a").lock_within(WHILE).await;
    assert!(third.as_ref().is_err_and(Error::is_transient), "{third:?}");
    let second = second.await.expect("no panic");
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_lost_in_an_outage_is_not_known_to_be_busy() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    let held = locker.mutex("a").lock().await.expect("locked");
    let behind = tokio::spawn(locker.mutex("a").lock_within(Duration::from_secs(30) + CALL / 3));
    for hangs in [&store.acquire_hangs, &store.release_hangs, &store.renew_hangs] {
        hangs.store(true, Ordering::SeqCst);
    }
    held.lost().await;
    let next = locker.mutex("a").lock_within(CALL / 2).await;
    for answer in [next, behind.await.expect("no panic")] {
        assert!(answer.as_ref().is_err_and(Error::is_transient), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_stood_behind_a_hold_is_told_that_it_was_busy_also_while_the_store_has_yet_to_answer() {
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { question_takes: WHILE, ..Slow::new(&clock) }, &clock);
    let held = locker.mutex("a").lock().await.expect("locked");
    // The one asks when the time of both is up.
    let waiting: Vec<_> = (0..2).map(|_| tokio::spawn(locker.mutex("a").lock_within(WHILE / 2))).collect();
    tokio::time::sleep(Duration::from_millis(1)).await;
    held.release().await.expect("given back");
    for one in waiting {
        let answer = one.await.expect("no panic");
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_owner_is_not_told_that_it_is_busy_while_the_store_does_not_answer_its_other_call() {
    let clock = Clock::for_tests();
    let (store, locker, other) = lockers(Slow::new(&clock), &clock);
    let owner = Owner::new();
    let mutex = locker.mutex("a").owner(&owner);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let first = tokio::spawn(mutex.lock());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = mutex.lock_within(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    while locker.stats().errors == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let second = mutex.try_lock().await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    store.acquire_hangs.store(false, Ordering::SeqCst);
    drop(first.await.expect("no panic").expect("locked"));
    // It is known when the other call was told so.
    let held = other.mutex("b").lock().await.expect("locked");
    let mutex = locker.mutex("b").owner(&owner);
    let first = tokio::spawn(mutex.lock());
    tokio::time::sleep(Duration::from_millis(1)).await;
    for second in [mutex.lock_within(WHILE).await, mutex.try_lock().await] {
        assert!(matches!(second, Ok(None)), "{second:?}");
    }
    drop(held);
    first.await.expect("no panic").expect("locked").release().await.expect("given back");
}

#[tokio::test(start_paused = true)]
async fn who_wants_several_within_a_limit_does_not_wait_for_what_it_gives_back() {
    let clock = Clock::for_tests();
    let (store, locker, other) = lockers(Slow::new(&clock), &clock);
    let held = other.mutex("b").lock().await.expect("locked");
    store.release_hangs.store(true, Ordering::SeqCst);
    let start = Instant::now();
    let got = locker.multi(["a", "b"]).lock_within(2 * WHILE).await;
    assert!(matches!(got, Ok(None)), "{got:?}");
    assert!(start.elapsed() < 3 * WHILE, "answered after {:?}", start.elapsed());
    // What it had got is given back by itself.
    store.release_hangs.store(false, Ordering::SeqCst);
    let freed = other.mutex("a").lock_within(2 * CALL).await.expect("asked");
    freed.expect("given back").release().await.expect("given back");
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_costs_no_hold() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    let mut held = Vec::new();
    for i in 0..100 {
        held.push(locker.mutex(format!("{i}")).lock().await.expect("locked"));
    }
    store.renew_panics.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!store.renew_panics.load(Ordering::SeqCst), "it was renewed");
    assert!(locker.stats().renewal_failures > 0);
    let lost = held.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost although the store panicked only once");
}

#[tokio::test(start_paused = true)]
async fn who_gets_the_turn_of_one_that_met_an_outage_is_not_told_that_it_is_busy() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    store.acquire_fails.store(true, Ordering::SeqCst);
    // Its time is up before it would ask again.
    let first = tokio::spawn(locker.mutex("a").lock_within(Duration::from_millis(15)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    store.acquire_hangs.store(true, Ordering::SeqCst);
    store.acquire_fails.store(false, Ordering::SeqCst);
    let second = locker.mutex("a").lock_within(WHILE).await;
    assert!(second.as_ref().is_err_and(Error::is_transient), "{second:?}");
    first.await.expect("no panic").expect_err("the store was away");
}

#[tokio::test(start_paused = true)]
async fn who_may_read_is_not_told_that_it_is_busy() {
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { answer_takes: WHILE, ..Slow::new(&clock) }, &clock);
    let wait = Duration::from_secs(2);
    let readers = (0..100).map(|_| tokio::spawn(locker.rwlock("a").read_within(wait)));
    let permits = (0..100).map(|_| tokio::spawn(locker.semaphore("b", 100).acquire_within(wait)));
    let mut held = Vec::new();
    for one in readers.chain(permits).collect::<Vec<_>>() {
        // They ask one after the other: the time may be over before it is the turn of all, but nobody has refused them.
        let answer = one.await.expect("no panic");
        assert!(matches!(&answer, Ok(Some(_))) || answer.as_ref().is_err_and(Error::is_transient), "{answer:?}");
        held.push(answer);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_forgotten_when_another_task_has_its_answer() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    store.acquire_fails.store(true, Ordering::SeqCst);
    // Its time is up before it would ask again.
    let first = tokio::spawn(locker.mutex("a").lock_within(Duration::from_millis(15)));
    tokio::time::sleep(Duration::from_millis(1)).await;
    let second = tokio::spawn(locker.mutex("a").lock());
    let third = tokio::spawn(locker.mutex("a").lock());
    store.acquire_fails.store(false, Ordering::SeqCst);
    first.await.expect("no panic").expect_err("the store was away");
    let held = second.await.expect("no panic").expect("locked");
    // Somebody is in the lane all the time; the one who has asked last was told no error.
    let busy = locker.mutex("a").try_lock().await;
    assert!(matches!(busy, Ok(None)), "{busy:?}");
    drop(held);
    let held = third.await.expect("no panic").expect("locked");
    assert!(matches!(locker.mutex("a").try_lock().await, Ok(None)));
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn short_leases_survive_beside_thousands_of_long_ones() {
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { claim_takes: Duration::from_micros(30), ..Slow::new(&clock) }, &clock);
    let long = Duration::from_secs(30);
    let mut held = Vec::new();
    for i in 0..9000 {
        held.push(locker.mutex(format!("long {i}")).lease(long).lock().await.expect("locked"));
    }
    for i in 0..20 {
        held.push(locker.mutex(format!("short {i}")).lease(Duration::from_millis(200)).lock().await.expect("locked"));
    }
    // Several renewals of the long ones, hundreds of the short ones.
    tokio::time::sleep(2 * long).await;
    let lost = held.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost although the store renewed all that it was asked to");
}

#[tokio::test(start_paused = true)]
async fn short_leases_survive_the_release_of_thousands() {
    let clock = Clock::for_tests();
    let (_, locker, other) = lockers(Slow { claim_takes: Duration::from_micros(30), ..Slow::new(&clock) }, &clock);
    let mut long = Vec::new();
    for i in 0..9000 {
        long.push(locker.mutex(format!("long {i}")).lock().await.expect("locked"));
    }
    let mut short = Vec::new();
    for i in 0..20 {
        short.push(locker.mutex(format!("short {i}")).lease(Duration::from_millis(200)).lock().await.expect("locked"));
    }
    drop(long);
    // The last one is free as soon as the store could do all of it.
    let last = other.mutex("long 8999").lock_within(Duration::from_secs(1)).await.expect("asked");
    drop(last.expect("it was given back"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let lost = short.iter().filter(|guard| !guard.is_valid()).count();
    assert_eq!(lost, 0, "holds were lost because others were given back");
}

#[tokio::test(start_paused = true)]
async fn thousands_of_releases_that_hang_keep_no_turn_for_longer_than_one_call_may_take() {
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow::new(&clock), &clock);
    let mut held = Vec::new();
    for i in 0..1500 {
        held.push(locker.mutex(format!("{i}")).lock().await.expect("locked"));
    }
    store.release_hangs.store(true, Ordering::SeqCst);
    store.acquire_hangs.store(true, Ordering::SeqCst);
    let confirmed = tokio::spawn(held.pop().expect("the last one").release());
    drop(held);
    let start = Instant::now();
    let refused = confirmed.await.expect("no panic");
    assert!(refused.as_ref().is_err_and(Error::is_transient), "{refused:?}");
    let asked = store.asked.load(Ordering::SeqCst);
    let last = tokio::spawn(locker.mutex("1498").lock());
    while store.asked.load(Ordering::SeqCst) == asked {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(start.elapsed() < CALL + WHILE, "the next one asked after {:?}", start.elapsed());
    last.abort();
}

#[tokio::test(start_paused = true)]
async fn many_tasks_of_one_client_leave_a_turn_to_one_of_another() {
    let clock = Clock::for_tests();
    for write in [false, true] {
        // The one is farther away than the many, who would be back before it each time.
        let (_, one, many) = lockers(Slow { question_takes: Duration::from_millis(30), ..Slow::new(&clock) }, &clock);
        let (grants, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = JoinSet::new();
        for _ in 0..40 {
            let (many, grants, stop) = (many.clone(), Arc::clone(&grants), Arc::clone(&stop));
            tasks.spawn(async move {
                while !stop.load(Ordering::SeqCst) {
                    let lock = many.rwlock("a");
                    let guard = if write { lock.write().await } else { many.mutex("a").lock().await }.expect("locked");
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.release().await.expect("given back");
                }
            });
        }
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(333)).await;
            let before = grants.load(Ordering::SeqCst);
            let lock = async { if write { one.rwlock("a").write().await } else { one.mutex("a").lock().await } };
            let guard = tokio::time::timeout(Duration::from_secs(60), lock).await.expect("it comes to its turn").expect("locked");
            let passed = grants.load(Ordering::SeqCst) - before;
            // A share is a grant and fifteen hand-overs. The pauses after them grow: 5, 10, 20 and 40 ms.
            assert!(passed <= 6 * 16, "{passed} grants of the other client came first");
            guard.release().await.expect("given back");
        }
        stop.store(true, Ordering::SeqCst);
        while tasks.join_next().await.is_some() {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_comes_back_at_once_leaves_a_turn_to_one_of_another_client() {
    let clock = Clock::for_tests();
    for write in [false, true] {
        // Nobody of its process stands in line behind it.
        let (_, far, near) = lockers(Slow { question_takes: Duration::from_millis(30), ..Slow::new(&clock) }, &clock);
        let lock = move |locker: &Locker| {
            let (mutex, rwlock) = (locker.mutex("a"), locker.rwlock("a"));
            async move { if write { rwlock.write().await } else { mutex.lock().await } }
        };
        let grants = Arc::new(AtomicU64::new(0));
        let comes_back = tokio::spawn({
            let grants = Arc::clone(&grants);
            async move {
                loop {
                    let guard = lock(&near).await.expect("locked");
                    grants.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    guard.release().await.expect("given back");
                }
            }
        });
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(333)).await;
            let before = grants.load(Ordering::SeqCst);
            let got = tokio::time::timeout(Duration::from_secs(60), lock(&far)).await;
            let guard = got.expect("it comes to its turn").expect("locked");
            let passed = grants.load(Ordering::SeqCst) - before;
            assert!(passed <= 6 * 16, "{passed} grants of the other client came first");
            guard.release().await.expect("given back");
        }
        comes_back.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_left_to_others_is_still_had_by_who_has_little_time() {
    let clock = Clock::for_tests();
    let (store, locker, other) = lockers(Slow { answer_takes: Duration::from_millis(1), ..Slow::new(&clock) }, &clock);
    let owner = other.mutex("b").lock().await.expect("locked").owner_id();
    let held = locker.mutex("a").lock().await.expect("locked");
    // In line for half a minute, and never there when it could have the lock.
    let waits = Claim {
        resource: Resource::new("a").expect("a name"),
        owner,
        mode: Mode::Exclusive,
        queue: Queue::Allowed,
        lease: Duration::from_secs(30),
        tokens: 1,
        at_least: None,
        note: None,
    };
    let busy = store.inner.client(client()).acquire(&waits).await.expect("asked");
    assert!(matches!(busy, Attempt::Busy { .. }), "{busy:?}");
    held.release().await.expect("given back");
    for i in 0..200 {
        let got = locker.mutex("a").lock_within(Duration::from_millis(20)).await.expect("asked");
        got.unwrap_or_else(|| panic!("it was free after {i} times")).release().await.expect("given back");
    }
}

#[tokio::test(start_paused = true)]
async fn others_who_never_come_do_not_slow_down_a_crowd() {
    let clock = Clock::for_tests();
    let mut grants = [0_u64; 2];
    for (says_others_wait, grants) in [false, true].into_iter().zip(&mut grants) {
        let (_, locker, _) = lockers(Slow { says_others_wait, ..Slow::new(&clock) }, &clock);
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
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { says_others_wait: true, ..Slow::new(&clock) }, &clock);
    for round in 0..50 {
        let first = locker.mutex("a").lock().await.expect("locked");
        let patient = tokio::spawn({
            let mutex = locker.mutex("a");
            async move { mutex.lock().await.expect("locked").release().await.expect("given back") }
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let within = |ms| locker.mutex("a").lock_within(Duration::from_millis(ms));
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
    let clock = Clock::for_tests();
    let (store, locker, _) = lockers(Slow { says_others_wait: true, ..Slow::new(&clock) }, &clock);
    let mut held = locker.mutex("a").lock().await.expect("locked");
    let mut asked_while_it_rested = 0;
    for _ in 0..7 {
        // The pause doubles with every share: 5 ms to 320 ms.
        let next = tokio::spawn(locker.mutex("a").lock());
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

#[tokio::test(start_paused = true)]
async fn all_who_close_wait_until_it_is_closed() {
    let clock = Clock::for_tests();
    let (_, locker, _) = lockers(Slow { closing_takes: Duration::from_secs(1), ..Slow::new(&clock) }, &clock);
    let start = Instant::now();
    let first = tokio::spawn({
        let locker = locker.clone();
        async move { locker.close().await }
    });
    tokio::task::yield_now().await;
    locker.close().await.expect("closed");
    assert!(start.elapsed() >= Duration::from_secs(1), "answered after {:?}", start.elapsed());
    first.await.expect("no panic").expect("closed");
    locker.close().await.expect("closed");
}

#[tokio::test]
async fn who_closes_twice_is_answered_also_if_the_runtime_ends_under_it() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let clock = Clock::system();
    let slow = Slow { closing_takes: Duration::from_secs(2), ..Slow::new(&clock) };
    let locker = Locker::builder().runtime(runtime.handle().clone()).over(Arc::new(slow)).expect("a locker");
    drop(tokio::time::timeout(Duration::from_millis(50), locker.close()).await);
    runtime.shutdown_background();
    let closed = tokio::time::timeout(Duration::from_secs(20), locker.close()).await.expect("answered");
    assert!(matches!(closed, Ok(()) | Err(Error::Closed)), "{closed:?}");
}
