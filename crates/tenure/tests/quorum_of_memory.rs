//! A quorum whose nodes a test can silence, slow down and make forget, on a paused clock.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tenure::backend::{
    Attempt, Backend, Broken, Capabilities, Claim, Client, Holder, Member, Mode, Modes, Queue, Released, Renewal, Scope, Server,
    Standing, State,
};
use tenure::backends::memory::Memory;
use tenure::backends::quorum::{Quorum, Settings};
use tenure::clock::Clock;
use tenure::signal::Signal;
use tenure::{ClientId, Error, Fault, Locker, LostReason, OwnerIds, Resource, Result, Token};
use tokio::runtime::Handle;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(30);

/// A node: a memory store that may be away, slow, or restarted without its data.
#[derive(Debug)]
struct Node {
    store: Mutex<Arc<Memory>>,
    clock: Clock,
    away: AtomicBool,
    /// How long its answers take.
    slow: Mutex<Duration>,
    asked: AtomicUsize,
    /// When it was last started, and how often.
    started: Mutex<(Instant, u64)>,
    fails_over: bool,
}

fn client() -> Client {
    Client { id: ClientId::random().expect("random bits"), about: "a test".into() }
}

impl Node {
    fn new(clock: &Clock) -> Arc<Self> {
        Arc::new(Self {
            store: Mutex::new(Arc::new(Memory::new(client(), clock.clone()))),
            clock: clock.clone(),
            away: AtomicBool::new(false),
            slow: Mutex::default(),
            asked: AtomicUsize::new(0),
            // Long ago.
            started: Mutex::new((Instant::now(), 0)),
            fails_over: false,
        })
    }

    fn store(&self) -> Arc<Memory> {
        Arc::clone(&self.store.lock().expect("not poisoned"))
    }

    /// Killed and started again, empty.
    fn restart(&self) {
        *self.store.lock().expect("not poisoned") = Arc::new(Memory::new(client(), self.clock.clone()));
        let mut started = self.started.lock().expect("not poisoned");
        *started = (Instant::now(), started.1 + 1);
    }

    async fn through<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.away.load(Ordering::SeqCst) {
            return Err(Error::unavailable("node", "asking", Fault::Connection, "away"));
        }
        let slow = *self.slow.lock().expect("not poisoned");
        let answer = call.await;
        tokio::time::sleep(slow).await;
        answer
    }

    async fn holders(&self, name: &str) -> Vec<Holder> {
        let name = Resource::new(name).expect("a name");
        self.store().inspect(Scope::One(&name)).await.expect("inspected").remove(0).holders
    }
}

#[async_trait]
impl Backend for Node {
    fn capabilities(&self) -> Capabilities {
        Capabilities { fails_over: self.fails_over, ..self.store().capabilities() }
    }

    fn partition(&self, resource: &Resource) -> u32 {
        self.store().partition(resource)
    }

    async fn acquire(&self, claim: &Claim) -> Result<Attempt> {
        self.through(async { self.store().acquire(claim).await }).await
    }

    async fn renew(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.through(async { self.store().renew(claims).await }).await
    }

    async fn release(&self, claim: &Claim) -> Result<Released> {
        self.through(async { self.store().release(claim).await }).await
    }

    async fn watch(&self, claim: &Claim) -> Result<Signal> {
        self.through(async { self.store().watch(claim).await }).await
    }

    async fn inspect(&self, scope: Scope<'_>) -> Result<Vec<State>> {
        self.through(async { self.store().inspect(scope).await }).await
    }

    async fn break_hold(&self, resource: &Resource, at_least: Option<Token>) -> Result<Option<Broken>> {
        self.through(async { self.store().break_hold(resource, at_least).await }).await
    }

    async fn introduce(&self, longest: Duration) -> Result<Server> {
        self.through(async {
            let server = self.store().introduce(longest).await?;
            let (started, session) = *self.started.lock().expect("not poisoned");
            // The first start was long ago.
            let up = if session == 0 { Duration::from_secs(3600) } else { started.elapsed() };
            Ok(Server { up: Some(up), session, ..server })
        })
        .await
    }

    fn session(&self) -> u64 {
        self.started.lock().expect("not poisoned").1
    }

    fn members(&self) -> Vec<Member> {
        Vec::new()
    }

    fn refusal(&self, mode: Mode) -> Error {
        self.store().refusal(mode)
    }

    async fn close(&self) -> Result<()> {
        self.store().close().await
    }
}

struct Set {
    nodes: Vec<Arc<Node>>,
    clock: Clock,
}

impl Set {
    fn of(n: usize) -> Self {
        let clock = Clock::for_tests();
        Self { nodes: (0..n).map(|_| Node::new(&clock)).collect(), clock }
    }

    async fn quorum(&self, settings: Settings) -> Result<Quorum> {
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.map(|(i, node)| (format!("node {i}"), Arc::clone(node) as Arc<dyn Backend>)).collect();
        Quorum::new(nodes, Settings { clock: self.clock.clone(), ..settings }).await
    }

    async fn locker(&self) -> Locker {
        self.locker_with(Settings::default()).await
    }

    async fn locker_with(&self, settings: Settings) -> Locker {
        let quorum = Arc::new(self.quorum(settings).await.expect("connected"));
        let builder = Locker::builder().lease(LEASE).clock(self.clock.clone()).runtime(Handle::current());
        builder.over(quorum).expect("a locker")
    }

    /// The nodes at which somebody holds a name.
    async fn with(&self, name: &str) -> Vec<usize> {
        let mut found = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            if !node.holders(name).await.is_empty() {
                found.push(i);
            }
        }
        found
    }

    async fn eventually(&self, name: &str, at: &[usize]) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.with(name).await != at {
            assert!(Instant::now() < deadline, "held at {:?}, not at {at:?}", self.with(name).await);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn away(&self, nodes: &[usize], away: bool) {
        nodes.iter().for_each(|node| self.nodes[*node].away.store(away, Ordering::SeqCst));
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_vote_is_kept_while_the_hold_lasts_and_given_back_with_it() {
    let set = Set::of(3);
    let locker = set.locker().await;
    *set.nodes[2].slow.lock().expect("not poisoned") = Duration::from_millis(500);
    let guard = locker.mutex("a").lock().await.expect("locked by the others");
    set.eventually("a", &[0, 1, 2]).await;
    guard.release().await.expect("given back");
    set.eventually("a", &[]).await;
    // Given back before the late vote has come.
    let guard = locker.mutex("a").lock().await.expect("locked by the others");
    guard.release().await.expect("given back");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(set.with("a").await, Vec::<usize>::new());
}

#[tokio::test(start_paused = true)]
async fn a_token_stands_on_a_majority_and_is_larger_than_any_that_did() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let name = Resource::new("a").expect("a name");
    let first = locker.mutex("a").lock().await.expect("locked");
    let ahead = Token::new(first.token().get() + 3_600_000_000);
    first.release().await.expect("given back");
    // One node is an hour ahead, as if its clock had been, and one is away: it takes part in every majority.
    assert!(set.nodes[0].store().break_hold(&name, Some(ahead)).await.expect("raised").is_none());
    set.away(&[2], true);
    let second = locker.mutex("a").lock().await.expect("locked");
    assert!(second.token() > ahead, "{} after {ahead}", second.token());
    let third = second.token();
    second.release().await.expect("given back");
    // The node that had it alone goes away: the token must stand elsewhere too.
    set.away(&[2], false);
    set.away(&[0], true);
    let last = locker.mutex("a").lock().await.expect("locked");
    assert!(last.token() > third, "{} after {third}", last.token());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_lost_a_vote_is_given_it_again_only_by_a_majority() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    set.eventually("a", &[0, 1, 2]).await;
    set.nodes[1].restart();
    set.eventually("a", &[0, 1, 2]).await;
    assert!(guard.is_valid());
    // The majority has lost it: nothing is given to anybody, and what is left goes.
    set.nodes[0].restart();
    set.nodes[1].restart();
    let lost = guard.lost().await;
    assert_eq!(lost.reason, LostReason::Revoked);
    set.eventually("a", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_restarted_does_not_count_until_the_longest_lease_has_passed() {
    let set = Set::of(3);
    let locker = set.locker().await;
    drop(locker.mutex("warm").lock().await.expect("locked"));
    set.nodes[0].restart();
    set.away(&[1], true);
    let error = locker.mutex("a").try_lock().await.expect_err("one vote that counts");
    assert!(error.is_transient(), "{error}");
    assert!(error.to_string().contains("node 0: restarted of late"), "{error}");
    let members = locker.stats().members;
    assert!(matches!(members[0].standing, Standing::Quarantined { left } if left <= LEASE), "{members:?}");
    let start = Instant::now();
    let guard = locker.mutex("a").lock().await.expect("locked when it counts again");
    assert!(start.elapsed() > LEASE * 9 / 10, "after {:?}", start.elapsed());
    assert!(guard.is_valid());
    assert!(matches!(locker.stats().members[0].standing, Standing::Counts));
}

#[tokio::test(start_paused = true)]
async fn the_quarantine_lasts_as_long_as_the_longest_lease_of_any_client() {
    let set = Set::of(3);
    let long = set.locker_with(Settings { lease: LEASE * 10, ..Settings::default() }).await;
    let short = set.locker().await;
    drop(long.mutex("warm").lock().await.expect("locked"));
    drop(short.mutex("warm").lock().await.expect("locked"));
    set.nodes[0].restart();
    set.away(&[1], true);
    tokio::time::sleep(LEASE * 5).await;
    short.mutex("a").try_lock().await.expect_err("one vote that counts");
    tokio::time::sleep(LEASE * 6).await;
    assert!(short.mutex("a").try_lock().await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_comes_into_use_later_quarantines_nobody() {
    let set = Set::of(3);
    set.nodes.iter().for_each(|node| node.restart());
    tokio::time::sleep(LEASE + Duration::from_secs(5)).await;
    let early = set.locker().await;
    let guard = early.mutex("early").lock().await.expect("locked");
    // By one who comes with a lease that is much longer than the nodes are old.
    let long = set.locker().await;
    let _long = long.mutex("long").lease(LEASE * 100).lock().await.expect("locked");
    tokio::time::sleep(LEASE * 2).await;
    assert!(guard.is_valid(), "{:?}", guard.state());
    let late = set.locker().await;
    assert!(late.mutex("late").try_lock().await.expect("asked").is_some());
    // But what is forgotten in a restart from now on may be of that length.
    set.nodes[0].restart();
    set.away(&[1], true);
    tokio::time::sleep(LEASE * 50).await;
    for locker in [&early, &set.locker().await] {
        let error = locker.mutex("x").try_lock().await.expect_err("one vote that counts").to_string();
        assert!(error.contains("node 0: restarted of late"), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_been_idle_asks_the_others_before_a_restarted_node_counts() {
    let set = Set::of(3);
    let idle = set.locker().await;
    let _long = set.locker_with(Settings { lease: LEASE * 10, ..Settings::default() }).await;
    set.nodes[0].restart();
    set.away(&[1], true);
    // Longer than the longest lease that the idle one knows of.
    tokio::time::sleep(LEASE * 2).await;
    for _ in 0..3 {
        let error = idle.mutex("a").try_lock().await.expect_err("one vote that counts").to_string();
        assert!(error.contains("node 0: restarted of late"), "{error}");
    }
    tokio::time::sleep(LEASE * 9).await;
    assert!(idle.mutex("a").try_lock().await.expect("asked").is_some());
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_do_not_wake_each_other() {
    let set = Set::of(5);
    let (holder, one, other) = (set.locker().await, set.locker().await, set.locker().await);
    // A bare majority: two nodes are free, and those who wait get and give back votes there.
    set.away(&[3, 4], true);
    let guard = holder.mutex("a").lease_fixed(LEASE * 4).lock().await.expect("locked");
    tokio::time::sleep(Duration::from_secs(5)).await;
    set.away(&[3, 4], false);
    let waiting = [&one, &other].map(|locker| {
        let lock = locker.mutex("a").lock();
        tokio::spawn(async move { lock.await.expect("locked").release().await.expect("given back") })
    });
    tokio::time::sleep(Duration::from_secs(5)).await;
    let before = set.nodes[3].asked.load(Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let asked = set.nodes[3].asked.load(Ordering::SeqCst) - before;
    assert!(asked < 40, "asked {asked} times in 20 s while nothing changed");
    guard.release().await.expect("given back");
    for waiter in waiting {
        tokio::time::timeout(LEASE / 2, waiter).await.expect("woken").expect("no panic");
    }
}

#[tokio::test(start_paused = true)]
async fn many_who_ask_at_once_all_come_to_their_turn() {
    let set = Set::of(5);
    let held = Arc::new(AtomicUsize::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..8_u64 {
        let (locker, held) = (set.locker().await, Arc::clone(&held));
        // Each reaches the nodes in an order of its own.
        for (n, node) in set.nodes.iter().enumerate() {
            *node.slow.lock().expect("not poisoned") = Duration::from_millis((i * 7 + n as u64 * 3) % 10);
        }
        tasks.spawn(async move {
            for _ in 0..10 {
                let guard = locker.mutex("a").lock().await.expect("locked");
                assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                tokio::time::sleep(Duration::from_millis(1)).await;
                held.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.expect("given back");
            }
        });
    }
    let all = async { while tasks.join_next().await.transpose().expect("no panic").is_some() {} };
    tokio::time::timeout(Duration::from_secs(600), all).await.expect("all came to their turn");
    set.eventually("a", &[]).await;
}

#[tokio::test(start_paused = true)]
async fn readers_share_a_majority_and_a_writer_is_alone() {
    let set = Set::of(3);
    let (one, other) = (set.locker().await, set.locker().await);
    let read = [one.rwlock("rw").read().await.expect("read"), other.rwlock("rw").read().await.expect("read")];
    assert!(one.rwlock("rw").try_write().await.expect("asked").is_none());
    drop(read);
    let write = other.rwlock("rw").write().await.expect("write");
    assert!(one.rwlock("rw").try_read().await.expect("asked").is_none());
    drop(write);
}

#[tokio::test(start_paused = true)]
async fn what_a_majority_cannot_decide_is_not_supported() {
    let quorum = Set::of(3).quorum(Settings::default()).await.expect("connected");
    assert_eq!(quorum.capabilities().modes, Modes { shared: true, ..Modes::EXCLUSIVE });
    let set = Set::of(3);
    let locker = set.locker().await;
    let refused = locker.semaphore("s", 2).acquire().await.expect_err("three winners of two permits");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
    let refused = locker.mutex("f").fair().lock().await.expect_err("lines differ by node");
    assert!(matches!(refused, Error::Unsupported { .. }), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn lists_that_make_no_sense_are_refused_by_name() {
    for (n, says) in [(1, "alone"), (2, "draw"), (4, "draw"), (9, "more than")] {
        let error = Set::of(n).quorum(Settings::default()).await.expect_err("refused").to_string();
        assert!(error.contains(&format!("a quorum of {n}")) && error.contains(says), "{error}");
    }
    let mut twice = Set::of(3);
    twice.nodes[2] = Arc::clone(&twice.nodes[0]);
    let error = twice.quorum(Settings::default()).await.expect_err("refused").to_string();
    assert!(error.contains("node 2") && error.contains("the same server"), "{error}");
    let mut replicated = Set::of(3);
    replicated.nodes[1] = Arc::new(Node { fails_over: true, ..Arc::into_inner(Node::new(&replicated.clock)).expect("alone") });
    let error = replicated.quorum(Settings::default()).await.expect_err("refused").to_string();
    assert!(error.contains("node 1") && error.contains("fails over"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_says_what_each_node_said() {
    let set = Set::of(5);
    let locker = set.locker().await;
    let guard = locker.mutex("a").lock().await.expect("locked");
    set.eventually("a", &[0, 1, 2, 3, 4]).await;
    set.away(&[0, 1, 2], true);
    let other = set.quorum(Settings::default()).await.expect_err("a majority is away").to_string();
    for says in ["3 of 5 nodes", "node 0: ", "node 1: ", "node 2: ", "away"] {
        assert!(other.contains(says), "{other}");
    }
    let error = locker.mutex("b").try_lock().await.expect_err("a majority is away").to_string();
    assert!(error.contains("node 2: ") && error.contains("away") && error.contains("node 4: has answered"), "{error}");
    assert_eq!(guard.lost().await.reason, LostReason::Expired);
}

/// Two of five restart within a moment, and the one that could tell of the lease is slow.
#[tokio::test(start_paused = true)]
async fn nodes_that_forgot_are_no_witnesses_for_each_other() {
    let set = Set::of(5);
    let holder = set.locker().await;
    set.away(&[3, 4], true);
    let guard = holder.mutex("a").lease_fixed(LEASE).lock().await.expect("locked");
    set.away(&[3, 4], false);
    tokio::time::sleep(Duration::from_secs(1)).await;
    set.nodes[1].restart();
    tokio::time::sleep(Duration::from_secs(1)).await;
    set.nodes[0].restart();
    tokio::time::sleep(Duration::from_secs(2)).await;
    *set.nodes[2].slow.lock().expect("not poisoned") = Duration::from_millis(60);
    let other = set.locker().await;
    while guard.is_valid() {
        let second = other.mutex("a").try_lock().await;
        assert!(!guard.is_valid() || !matches!(second, Ok(Some(_))), "two hold it");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(tokio::time::timeout(LEASE * 2, other.mutex("a").lock()).await.expect("in time").expect("locked"));
}

/// With one lease longer than the other, for one who comes anew and for one who was there.
#[tokio::test(start_paused = true)]
async fn who_may_know_of_a_longer_lease_is_waited_for() {
    for newcomer in [true, false] {
        let set = Set::of(3);
        let (holder, old) = (set.locker().await, set.locker().await);
        drop(old.mutex("warm").lock().await.expect("locked"));
        set.away(&[2], true);
        let guard = holder.mutex("a").lease_fixed(LEASE * 2).lock().await.expect("locked");
        set.away(&[2], false);
        set.nodes[0].restart();
        tokio::time::sleep(LEASE + Duration::from_secs(3)).await;
        *set.nodes[1].slow.lock().expect("not poisoned") = Duration::from_millis(60);
        let other = if newcomer { set.locker().await } else { old };
        while guard.is_valid() {
            let second = other.mutex("a").try_lock().await;
            assert!(!guard.is_valid() || !matches!(second, Ok(Some(_))), "two hold it (newcomer: {newcomer})");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn claim(name: &str, lease: Duration) -> Claim {
    let owner = OwnerIds::new(ClientId::random().expect("random bits")).next();
    let resource = Resource::new(name).expect("a name");
    Claim { resource, owner, mode: Mode::Exclusive, queue: Queue::Never, lease, tokens: 1, at_least: None, note: None }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_has_lapsed_is_not_granted_again_under_its_token() {
    let lease = Duration::from_secs(1);
    let set = Set::of(3);
    let settings = || Settings { quarantine: false, ..Settings::default() };
    let (one, other) = (set.quorum(settings()).await.expect("one"), set.quorum(settings()).await.expect("two"));
    set.away(&[2], true);
    let (first, second) = (claim("a", lease), claim("a", lease));
    let Ok(Attempt::Granted { token, .. }) = one.acquire(&first).await else { panic!("not granted") };
    // One node counts a little slower.
    tokio::time::sleep(lease - Duration::from_millis(10)).await;
    assert!(matches!(set.nodes[0].store().renew(std::slice::from_ref(&first)).await.as_deref(), Ok([Renewal::Extended { .. }])));
    tokio::time::sleep(Duration::from_millis(20)).await;
    set.away(&[2], false);
    let Ok(Attempt::Granted { token: larger, .. }) = other.acquire(&second).await else { panic!("not granted") };
    assert!(larger > token);
    other.release(&second).await.expect("given back");
    tokio::time::sleep(Duration::from_millis(50)).await;
    // One of those who know has forgotten, and one is away: only the time is larger than both tokens.
    set.nodes[2].restart();
    set.away(&[1], true);
    for _ in 0..3 {
        if let Ok(Attempt::Granted { token: again, .. }) = one.acquire(&first).await {
            assert!(again > larger, "{again} after {larger}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_held_is_busy_also_with_a_node_away() {
    let set = Set::of(3);
    let (holder, other) = (set.locker().await, set.locker().await);
    set.away(&[2], true);
    let _guard = holder.mutex("a").lock().await.expect("locked");
    // Its answer comes after the error.
    *set.nodes[1].slow.lock().expect("not poisoned") = Duration::from_millis(20);
    for _ in 0..10 {
        assert!(other.mutex("a").try_lock().await.expect("busy, and no error").is_none());
    }
    assert!(other.mutex("a").lock_within(Duration::from_secs(3)).await.expect("busy, and no error").is_none());
    assert_eq!(other.stats().errors, 0);
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_waits_does_not_wake_itself() {
    for trouble in ["away", "restarted", "free"] {
        let set = Set::of(3);
        let (holder, writer) = (set.locker().await, set.locker().await);
        set.away(&[2], true);
        let guard = holder.rwlock("rw").read().await.expect("read");
        if trouble == "restarted" {
            set.nodes[2].restart();
        }
        set.away(&[2], trouble == "away");
        let waiting = tokio::spawn(writer.rwlock("rw").write());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = set.nodes[0].asked.load(Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let asked = set.nodes[0].asked.load(Ordering::SeqCst) - before;
        assert!(asked < 60, "{trouble}: asked {asked} times in 20 s while nothing changed");
        guard.release().await.expect("given back");
        drop(tokio::time::timeout(LEASE, waiting).await.expect("woken").expect("no panic").expect("locked"));
    }
}

#[tokio::test(start_paused = true)]
async fn one_node_away_and_one_that_is_far_are_enough_to_connect() {
    let set = Set::of(3);
    set.away(&[0], true);
    *set.nodes[2].slow.lock().expect("not poisoned") = Duration::from_millis(400);
    let locker = set.locker().await;
    *set.nodes[2].slow.lock().expect("not poisoned") = Duration::ZERO;
    locker.mutex("a").lock().await.expect("locked").release().await.expect("given back");
}

#[tokio::test(start_paused = true)]
async fn very_many_may_ask_at_once() {
    let set = Set::of(3);
    let locker = set.locker().await;
    let asked = (0..3000).map(|i| locker.mutex(format!("{i}")).try_lock());
    for answer in futures_util::future::join_all(asked).await {
        assert!(answer.expect("asked").is_some());
    }
}
