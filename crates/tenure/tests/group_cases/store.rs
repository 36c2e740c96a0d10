//! One store, many lockers.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tempfile::TempDir;
use tenure::backend::Client;
use tenure::backends::memory::Memory;
use tenure::clock::Clock;
use tenure::{Builder, ClientId, Locker};
use tokio::runtime::Runtime;

use tenure_testkit::{Needs, RedisServer};

pub(crate) enum Store {
    Memory(Memory),
    Sqlite(TempDir),
    /// A database with a prefix of its own.
    Redis(String),
}

type Kind = (&'static str, Needs, fn() -> Store);

fn client() -> Client {
    Client { id: ClientId::random().expect("random bits"), about: "a test".into() }
}

fn server() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(RedisServer::start)
}

impl Store {
    pub(crate) const ALL: [Kind; 3] = [
        ("memory", Needs::Nothing, || Self::Memory(Memory::new(client(), Clock::system()))),
        ("sqlite", Needs::Nothing, || Self::Sqlite(tempfile::tempdir().expect("a directory"))),
        ("redis", Needs::Redis, || Self::Redis(format!("{}?prefix={}:", server().url(), client().id))),
    ];

    pub(crate) async fn locker(&self) -> Locker {
        self.locker_with(Locker::builder()).await
    }

    pub(crate) async fn locker_with(&self, builder: Builder) -> Locker {
        match self {
            Self::Memory(store) => builder.backend(Arc::new(store.client(client()))),
            Self::Sqlite(dir) => builder.connect(&format!("sqlite:{}/locks.db", dir.path().display())).await,
            Self::Redis(url) => builder.connect(url).await,
        }
        .expect("a locker")
    }

    /// A locker whose process can die.
    pub(crate) async fn mortal(&self, lease: Duration) -> (Locker, Mortal) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let locker = self.locker_with(Locker::builder().lease(lease).runtime(runtime.handle().clone())).await;
        (locker, Mortal(Some(runtime)))
    }
}

/// The life of a locker.
pub(crate) struct Mortal(Option<Runtime>);

impl Mortal {
    /// Nothing is given back, and nothing is renewed any more.
    pub(crate) fn die(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until something is true, however long a busy machine takes.
pub(crate) async fn eventually(what: &str, mut check: impl AsyncFnMut() -> bool) {
    let all = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tenure_testkit::locker::must(what, all).await;
}

/// Waits until nobody holds anything.
pub(crate) async fn until_all_free(locker: &Locker) {
    eventually("all is free", async || locker.list("").await.expect("listed").is_empty()).await;
}
