//! The suite that every backend passes: one property per test, named as a sentence.
//!
//! A store joins with a [`Subject`]: how to make a new client of it, on which clock, with which lease. Each property of
//! [`properties`] is run on it, and again through [`Faulty`]:
//!
//! ```
//! # use tenure::conformance::{Subject, properties};
//! for property in properties() {
//!     println!("{}", property.name);
//!     property.run_paused(Subject::memory);
//! #   break;
//! }
//! ```

mod claims;
mod family;
mod holds;
mod lines;
mod shared;
mod tokens;
mod turns;
mod waiting;
mod waking;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::runtime::{Builder, Handle};

use crate::backend::{Attempt, Backend, Claim, Client, Mode, Opened, Queue, Retry, Scope, State, Voter};
use crate::backends::faulty::{Faulty, Plan};
use crate::backends::memory::Memory;
use crate::backends::quorum::{Quorum, Settings};
use crate::clock::{Clock, Drift};
use crate::connect;
use crate::error::{Error, Result};
use crate::locker::Locker;
use crate::name::{ClientId, OwnerIds, Resource, Token};
use crate::store::Context;

type Make = dyn Fn(Client) -> BoxFuture<'static, Result<Opened>> + Send + Sync;

/// A store under test.
#[derive(Clone)]
pub struct Subject {
    make: Arc<Make>,
    clock: Clock,
    /// Where lockers run; `None`: on the library's own thread.
    runtime: Option<Handle>,
    lease: Duration,
    plan: Option<Plan>,
    /// What the names of a run begin with.
    prefix: String,
    /// How many bytes the store itself puts before each name.
    taken: usize,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("lease", &self.lease).field("plan", &self.plan).finish_non_exhaustive()
    }
}

/// One client of the store under test, below the engine.
pub(crate) struct Peer {
    pub(crate) backend: Arc<dyn Backend>,
    opened: Opened,
    pub(crate) owners: OwnerIds,
    lease: Duration,
}

/// One property.
pub struct Property {
    /// A sentence with underscores.
    pub name: &'static str,
    run: fn(Subject) -> BoxFuture<'static, ()>,
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Property {
    /// Checks the property in real time. Panics if it does not hold.
    pub fn run(&self, subject: &Subject) {
        Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime")
            .block_on((self.run)(subject.fresh()));
    }

    /// Checks the property on a paused clock, which makes all waiting immediate. For stores without I/O.
    pub fn run_paused(&self, subject: impl FnOnce() -> Subject) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        runtime.block_on(async { (self.run)(subject().fresh()).await });
    }
}

macro_rules! properties {
    ($($module:ident: $($name:ident)*;)*) => {
        /// All properties.
        #[must_use]
        pub fn properties() -> Vec<Property> {
            vec![$($(Property { name: stringify!($name), run: |subject| Box::pin($module::$name(subject)) },)*)*]
        }
    };
}

properties! {
    claims:
        a_free_lock_is_granted
        a_held_lock_is_busy_for_others
        a_retry_keeps_its_token
        never_leaves_no_place_in_line
        a_release_frees_the_lock
        releasing_twice_is_not_an_error
        a_stranger_cannot_release
        a_lapsed_hold_is_gone_and_is_not_made_again
        a_late_release_leaves_the_next_holder_alone
        renewal_extends_a_hold
        renewals_are_answered_in_order
        tokens_grow_in_grant_order
        a_block_of_tokens_is_skipped_by_the_next_grant
        a_release_fires_the_signal
        a_break_ends_the_hold_and_raises_the_fence
        breaking_a_free_lock_breaks_nothing
        inspect_shows_holder_token_note_and_time_left
        inspect_lists_held_names_under_a_literal_prefix
        names_of_all_kinds_are_kept_apart
        a_given_up_claim_leaves_nothing;
    tokens:
        a_token_is_at_least_what_was_asked_for
        a_hold_that_goes_on_is_raised_to_a_larger_token
        raising_one_of_many_takes_no_token_back
        a_break_raises_the_fence_also_where_nobody_holds
        an_identification_tells_who_answers;
    holds:
        a_lock_is_kept_alive_past_its_lease
        a_fixed_lease_ends_and_says_so
        max_hold_ends_a_forgotten_guard
        a_broken_hold_is_told
        a_broken_hold_is_told_long_before_its_next_renewal
        a_lost_hold_is_never_valid_again
        run_drops_its_future_on_loss
        a_dropped_guard_gives_the_lock_back
        an_owner_reenters_with_the_same_token
        a_scope_reenters_without_being_named
        closing_gives_everything_back
        a_grant_that_comes_too_late_is_not_taken;
    waiting:
        a_waiter_is_woken_by_a_release
        lock_within_gives_up_with_none
        try_lock_reports_busy_at_once
        a_cancelled_wait_leaves_nothing
        an_acquire_dropped_at_any_moment_leaves_nothing
        tasks_of_one_client_are_served_in_order
        a_hold_is_handed_over_with_a_larger_token
        a_missed_notification_is_made_up_for
        many_of_one_client_do_not_starve_one_of_another
        no_update_is_lost_among_clients;
    waking:
        who_waits_for_a_lock_hears_of_a_break_after_a_renewal
        who_stands_in_line_hears_of_a_break_after_a_renewal
        who_wants_to_read_hears_of_a_break_after_a_renewal
        who_wants_to_write_hears_of_other_readers_after_its_own
        who_wants_to_read_hears_of_other_writers_after_its_own
        who_wants_a_permit_hears_of_others_after_a_renewal
        who_wants_permits_hears_of_others_after_its_own_client_took_one
        who_waits_for_a_latch_hears_of_others_after_its_own_client_counted;
    shared:
        readers_share_and_a_writer_is_alone
        a_waiting_writer_stops_new_readers
        a_writer_that_gives_up_lets_readers_in
        a_dead_reader_ends_alone
        a_writer_becomes_a_reader_under_the_same_token
        a_downgrade_is_never_granted_anew
        a_read_release_fires_the_writers_signal
        a_break_ends_all_readers
        permits_never_exceed_the_number
        a_lapsed_permit_comes_back
        resizing_never_admits_above_the_new_number
        a_permit_that_comes_back_fires_the_signal
        a_break_takes_all_permits_back;
    turns:
        a_free_lock_is_left_to_a_writer_that_waits
        a_dead_writer_in_line_costs_readers_a_grace_each_time
        who_reads_or_has_written_leaves_nothing_to_a_writer_in_line
        readers_have_a_turn_between_writers
        a_release_wakes_the_writer_behind_readers_in_line
        near_readers_leave_a_turn_to_a_far_writer;
    lines:
        a_fair_line_is_served_in_order
        a_release_wakes_the_first_in_line_alone
        leaving_the_line_lets_the_next_one_in
        the_dead_in_line_end_with_one_waiters_lease
        a_latch_opens_at_zero
        a_removed_latch_wakes_all
        asking_a_latch_again_changes_nothing;
    family:
        readers_of_one_process_hold_together
        a_downgraded_hold_is_kept_alive_and_given_back
        an_upgrade_is_refused_at_once
        a_fair_lock_is_served_in_order_across_clients
        a_cancelled_fair_wait_leaves_the_line
        a_crowd_never_holds_more_than_the_permits
        permits_are_kept_alive
        a_latch_lets_all_go_on
        an_open_latch_is_open_to_all_who_ask_at_once;
}

impl Subject {
    /// A store of your own. `make` connects a new client to one and the same store each time: an `Arc<dyn Backend>`, or an
    /// [`Opened`] that says whether it can be a node of a quorum. Then that is tested too.
    pub fn new<F, Fut, O>(lease: Duration, make: F) -> Self
    where
        F: Fn(Client) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O>> + Send + 'static,
        O: Into<Opened>,
    {
        let make: Arc<Make> = Arc::new(move |client| {
            let opened = make(client);
            Box::pin(async move { Ok(opened.await?.into()) })
        });
        Self { make, clock: Clock::system(), runtime: None, lease, plan: None, prefix: String::new(), taken: 0 }
    }

    /// The store that a URL names, in real time.
    #[must_use]
    pub fn url(url: &str, lease: Duration) -> Self {
        let url = url.to_owned();
        let target = connect::parse(&url).ok();
        let taken = target.and_then(|target| Some(target.address.options.get("prefix")?.len())).unwrap_or(0);
        let subject = Self::new(lease, move |client| {
            let url = url.clone();
            let (timeout, drift) = (Duration::from_secs(10), Drift::DEFAULT);
            let (clock, registry) = (Clock::system(), connect::REGISTRY);
            async move {
                let mut target = connect::parse(&url)?;
                let prefix = target.address.options.take("prefix").unwrap_or_default();
                let context = Context { client, clock, timeout, lease, drift, prefix, registry };
                // Connections and pipes belong to the runtime that made them: the one that lockers use.
                let open = connect::prefixed(context, move |context| (registry.open)(target, context));
                crate::engine::background::handle()?.spawn(open).await.unwrap_or(Err(Error::Closed))
            }
        });
        Self { taken, ..subject }
    }

    /// The reference implementation, on tokio's clock.
    #[must_use]
    pub fn memory() -> Self {
        let clock = Clock::for_tests();
        let about = Client { id: ClientId::random().expect("random bits"), about: "conformance".into() };
        let store = Arc::new(Memory::new(about, clock.clone()));
        let make = move |client| {
            let store = Arc::clone(&store);
            async move { Ok(Arc::new(store.client(client))) }
        };
        Self { clock, runtime: Some(Handle::current()), ..Self::new(Duration::from_secs(30), make) }
    }

    /// A quorum of so many reference implementations, each behind faults of its own if there is a plan.
    #[must_use]
    pub fn quorum(nodes: usize, plan: Option<Plan>) -> Self {
        let clock = Clock::for_tests();
        let about = || Client { id: ClientId::random().expect("random bits"), about: "conformance".into() };
        let stores: Arc<[Memory]> = (0..nodes).map(|_| Memory::new(about(), clock.clone())).collect();
        let settings = Settings { clock: clock.clone(), ..Settings::default() };
        let make = move |client: Client| {
            let node = |(i, store): (usize, &Memory)| {
                let store: Arc<dyn Voter> = Arc::new(store.client(client.clone()));
                // Each at another rate: counted faults of several at the same rate could fall on the same question for ever.
                let own = |plan: Plan| {
                    let slower = |every: u64| if every == 0 { 0 } else { every + i as u64 };
                    Plan { lose_reply: slower(plan.lose_reply), lose_request: slower(plan.lose_request), ..plan }
                };
                let store = plan.map_or(Arc::clone(&store), |plan| Arc::new(Faulty::over(store, own(plan))));
                (format!("memory {i}"), store)
            };
            let (nodes, settings) = (stores.iter().enumerate().map(node).collect(), settings.clone());
            async move { sure_or_refused(|| Quorum::new(Vec::clone(&nodes), settings.clone())).await.map(Arc::new) }
        };
        Self { clock, runtime: Some(Handle::current()), ..Self::new(Duration::from_secs(30), make) }
    }

    /// The same through [`Faulty`].
    #[must_use]
    pub fn faulty(mut self) -> Self {
        self.plan = Some(Plan::bad_day(self.lease / 100));
        self
    }

    /// The same with names that no other run uses.
    fn fresh(&self) -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("{}t{}-{run}:", self.prefix, std::process::id()), ..self.clone() }
    }

    /// Whether its answers are lost and late.
    fn is_faulty(&self) -> bool {
        self.plan.is_some()
    }

    pub(crate) fn lease(&self) -> Duration {
        self.lease
    }

    /// The longest name of this run.
    pub(crate) fn longest_name(&self) -> String {
        "x".repeat(Resource::MAX_BYTES - self.prefix.len() - self.taken)
    }

    /// A name of this run.
    pub(crate) fn name(&self, name: &str) -> Resource {
        Resource::new(format!("{}{name}", self.prefix)).expect("a good name")
    }

    pub(crate) async fn peer(&self) -> Peer {
        self.peer_with(self.plan).await
    }

    pub(crate) async fn peer_with(&self, plan: Option<Plan>) -> Peer {
        let id = ClientId::random().expect("random bits");
        let client = Client { id, about: format!("about {id}").into() };
        let opened = (self.make)(client).await.expect("connected");
        let opened = match plan {
            Some(plan) => opened.layered(Faulty::new(plan)),
            None => opened,
        };
        Peer { backend: Arc::clone(opened.backend()), opened, owners: OwnerIds::new(id), lease: self.lease }
    }

    pub(crate) async fn locker(&self) -> Locker {
        self.locker_over(self.peer().await)
    }

    pub(crate) fn locker_over(&self, peer: Peer) -> Locker {
        // Longer than a lease: an answer that comes too late is to be seen, not cut off.
        let timeout = (self.lease * 2).max(Duration::from_secs(10));
        let mut builder = Locker::builder().lease(self.lease).clock(self.clock.clone()).timeout(timeout);
        if let Some(runtime) = &self.runtime {
            builder = builder.runtime(runtime.clone());
        }
        builder.backend_of(peer.opened, peer.owners.client()).expect("a locker")
    }

    /// Waits until something is true. Panics after a long time.
    pub(crate) async fn eventually<Fut: Future<Output = bool>>(&self, what: &str, mut check: impl FnMut() -> Fut) {
        let give_up = tokio::time::Instant::now() + self.lease * 20 + Duration::from_secs(20);
        while !check().await {
            assert!(tokio::time::Instant::now() < give_up, "never came true: {what}");
            tokio::time::sleep(self.lease / 50).await;
        }
    }
}

impl Peer {
    pub(crate) fn claim(&self, resource: &Resource) -> Claim {
        let claim = Claim::new(resource.clone(), self.owners.next(), Mode::Exclusive, self.lease);
        Claim { queue: Queue::Allowed, ..claim }
    }

    /// The store as a quorum asks it, if it can be a node of one.
    pub(crate) fn voter(&self) -> Option<&dyn Voter> {
        self.opened.voter().map(|voter| &**voter)
    }

    pub(crate) fn wants(&self, resource: &Resource, mode: Mode) -> Claim {
        Claim { mode, ..self.claim(resource) }
    }

    /// Asks until there is an answer: unknown is neither yes nor no.
    pub(crate) async fn ask(&self, claim: &Claim) -> Attempt {
        sure(|| self.backend.acquire(claim)).await
    }

    pub(crate) async fn granted(&self, claim: &Claim) -> Token {
        match self.ask(claim).await {
            Attempt::Granted { token, .. } => token,
            other => panic!("{claim:?} was answered {other:?}"),
        }
    }

    pub(crate) async fn busy(&self, claim: &Claim) {
        let answer = self.ask(claim).await;
        let is_busy = matches!(answer, Attempt::Busy { retry: Retry::OnSignal { .. }, .. });
        assert!(is_busy, "{claim:?} was answered {answer:?}");
    }

    pub(crate) async fn release(&self, claim: &Claim) {
        sure(|| self.backend.release(claim)).await;
    }

    pub(crate) async fn state(&self, resource: &Resource) -> State {
        sure(|| self.backend.inspect(Scope::One(resource))).await.remove(0)
    }
}

/// Repeats a verb while its outcome is unknown.
pub(crate) async fn sure<T, Fut: Future<Output = Result<T>>>(verb: impl FnMut() -> Fut) -> T {
    sure_or_refused(verb).await.expect("an answer")
}

/// The same for a verb that may be refused.
pub(crate) async fn sure_or_refused<T, Fut: Future<Output = Result<T>>>(mut verb: impl FnMut() -> Fut) -> Result<T> {
    for _ in 0..20 {
        match verb().await {
            Err(e) if e.is_transient() => tokio::time::sleep(Duration::from_millis(1)).await,
            answer => return answer,
        }
    }
    panic!("no answer in twenty attempts")
}
