//! A store of another crate, by its URL: all that is promised of URLs holds for it too. The suite runs on it in `conformance`.

#[path = "stores/toy.rs"]
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tenure::backend::{Call, Capabilities, Layer, Opened};
use tenure::backends::memory::Memory;
use tenure::store::Scheme;
use tenure::{Error, ErrorKind, Fault, Locker, Result, connect};

const SECRET: &str = "QXZJ";

async fn connect(url: &str) -> Result<Locker> {
    connect::register(&toy::SCHEME)?;
    Locker::connect(url).await
}

/// Why a URL is refused. No part of its password is said, in whatever way it is asked.
async fn refused(url: &str) -> String {
    let error = connect(url).await.expect_err("refused");
    let said = format!("{error:?}");
    assert!(!said.contains(SECRET) && !error.to_string().contains(SECRET), "{said}");
    error.to_string()
}

#[tokio::test]
async fn its_urls_have_credentials_options_and_a_prefix() {
    let url = format!("toy://user:{SECRET}@host/one");
    let plain = connect(&url).await.expect("connected");
    let prefixed = connect(&format!("{url}?prefix=p:&lease=7s&timeout=1s&holder=hide")).await.expect("connected");
    let guard = prefixed.mutex("a").lock().await.expect("locked");
    let state = plain.mutex("p:a").inspect().await.expect("inspected");
    assert!(state.holders[0].expires_in.is_some_and(|left| left <= Duration::from_secs(7)), "{state:?}");
    assert!(plain.mutex("p:a").try_lock().await.expect("asked").is_none(), "the prefix stands before the name");
    assert_eq!(prefixed.list("").await.expect("listed")[0].resource.as_str(), "a");
    guard.release().await.expect("released");
    for locker in [plain, prefixed] {
        assert!(!format!("{locker:?} {:?}", locker.stats()).contains(SECRET), "{locker:?}");
        locker.close().await.expect("closed");
    }
}

#[tokio::test]
async fn what_is_wrong_with_its_url_is_said_without_its_password() {
    let _first = connect(&format!("toy://u:{SECRET}@host/two")).await.expect("connected");
    for (url, words) in [
        ("toy://host/two", "toy refused connecting: wrong or missing credentials"),
        (
            "toy://u:QXZJ@host/x?holdr=show",
            "the first option of toy: is unknown; allowed: lease, timeout, prefix, linger, holder",
        ),
        ("toy://u:QXZJ@host/x?holder=QXZJ", "the option \"holder\" has a value that is unknown; allowed: show, hide"),
        ("toy://u:QXZJ@host/x?lease=1ns", "the option \"lease\" a lease of 1ns is out of range"),
        ("toy:u:QXZJ@host", "the toy: URL has no host; allowed: toy://[user:password@]host/name"),
        ("toy://u:a/QXZJ@host/x", "the toy: URL has an @ where none can be; allowed: %40"),
        ("toy://u:4947?prefix=QXZJ@host", "the toy: URL has an @ where none can be"),
        ("toy://u:QXZJ", "the toy: URL has a host that cannot be read"),
        ("toy://u:QXZJ#@host", "the toy: URL has a fragment"),
    ] {
        let said = refused(url).await;
        let words: Vec<&str> = words.split(" a lease of 1ns ").collect();
        assert!(words.iter().all(|words| said.contains(words)), "{url}: {said}");
    }
}

#[tokio::test]
async fn a_store_that_is_no_voter_is_no_node_of_a_quorum() {
    let url = format!("quorum:toy://u:{SECRET}@a/q|toy://u:{SECRET}@b/q|toy://u:{SECRET}@c/q");
    assert_eq!(refused(&url).await, "toy does not support being a node of a quorum");
    let unknown = refused(&format!("{url}?holdr=show")).await;
    assert!(unknown.contains("an option of node 1 of quorum:") && unknown.contains("is unknown"), "{unknown}");
    let own = refused(&format!("{url}?holder={SECRET}")).await;
    assert!(own.contains("the option \"holder\" has a value that is unknown"), "an option of its nodes: {own}");
    let misplaced = refused(&format!("quorum:toy://u:a|{SECRET}@a/q|toy://b/q")).await;
    assert!(misplaced.contains("has an @ where none can be"), "{misplaced}");
}

#[tokio::test]
async fn a_store_that_is_a_voter_is_a_node_of_a_quorum() {
    static VOTES: Scheme = Scheme::new("votes", |_, context| {
        Box::pin(async { Ok(Opened::of_voter(Arc::new(Memory::new(context.client, context.clock)))) })
    });
    connect::register(&VOTES).expect("registered");
    let locker = Locker::connect("quorum:votes://a|votes://b|votes://c").await.expect("connected");
    assert_eq!(locker.stats().nodes.len(), 3);
    let first = locker.mutex("a").lock().await.expect("locked");
    assert!(first.is_valid());
    let token = first.token();
    first.release().await.expect("given back");
    assert!(locker.mutex("a").lock().await.expect("locked").token() > token);
}

#[tokio::test]
async fn two_urls_of_one_store_are_one_store_whoever_logs_in() {
    let url = format!("toy://u:{SECRET}@host/three");
    let (one, same) = (connect(&url).await.expect("connected"), connect(&url).await.expect("connected"));
    let both = tenure::Multi::of([one.mutex("a"), same.mutex("a")]).lock().await.expect_err("it would wait for itself");
    assert!(both.to_string().contains("is asked for through two lockers"), "{both}");
}

#[test]
fn a_name_is_registered_once() {
    static OTHER: Scheme = Scheme::new("toy", |_, _| Box::pin(async { Err(Error::Closed) }));
    connect::register(&toy::SCHEME).expect("registered");
    connect::register(&toy::SCHEME).expect("the same one");
    let taken = connect::register(&OTHER).expect_err("another one").to_string();
    assert!(
        taken.contains("\"toy\" is registered already, for another store; allowed: a name that is none of memory:"),
        "{taken}"
    );
    assert_eq!(connect::schemes().filter(|scheme| *scheme == "toy").count(), 1);
}

#[tokio::test]
async fn a_store_that_hangs_or_panics_while_it_is_opened_is_unavailable() {
    static HANGS: Scheme = Scheme::new("hangs", |_, _| Box::pin(std::future::pending()));
    static PANICS: Scheme = Scheme::new("panics", |_, _| Box::pin(async { panic!("the test's own") }));
    for (scheme, fault) in [(&HANGS, Fault::Timeout), (&PANICS, Fault::Protocol)] {
        connect::register(scheme).expect("registered");
        let url = format!("{}://host?timeout=50ms", scheme.name());
        let opened = tokio::time::timeout(Duration::from_secs(20), Locker::connect(&url)).await.expect("in time");
        let error = opened.expect_err("it cannot be opened");
        assert_eq!((error.kind(), error.fault()), (ErrorKind::Unavailable, Some(fault)), "{error}");
    }
}

/// A store whose leases are whole seconds, and that counts how often it is closed.
#[derive(Debug)]
struct Counted;

static OPENED: AtomicUsize = AtomicUsize::new(0);
static CLOSED: AtomicUsize = AtomicUsize::new(0);

impl Layer for Counted {
    fn capabilities(&self, inner: &Capabilities) -> Capabilities {
        let mut capabilities = inner.clone();
        capabilities.leases.shortest = Duration::from_secs(2);
        capabilities
    }

    async fn around<T: Send>(&self, call: Call<'_>, inner: impl Future<Output = Result<T>> + Send) -> Result<T> {
        if let Call::Close = call {
            CLOSED.fetch_add(1, Ordering::SeqCst);
        }
        inner.await
    }
}

#[tokio::test]
async fn a_store_that_is_refused_is_closed_if_it_was_opened() {
    static SCHEME: Scheme = Scheme::new("counted", |_, context| {
        OPENED.fetch_add(1, Ordering::SeqCst);
        Box::pin(async { Ok(Opened::from(Arc::new(Memory::new(context.client, context.clock))).layered(Counted)) })
    });
    connect::register(&SCHEME).expect("registered");
    let too_long = format!("counted://host?prefix={}", "p".repeat(600));
    Locker::connect(&too_long).await.expect_err("no name could follow");
    assert_eq!(OPENED.load(Ordering::SeqCst), 0, "what can be said before is said before");
    Locker::connect("counted://host?lease=1s").await.expect_err("too short for this store");
    let until = Instant::now() + Duration::from_secs(20);
    while CLOSED.load(Ordering::SeqCst) < OPENED.load(Ordering::SeqCst) && Instant::now() < until {
        tokio::task::yield_now().await;
    }
    assert_eq!((OPENED.load(Ordering::SeqCst), CLOSED.load(Ordering::SeqCst)), (1, 1));
}
