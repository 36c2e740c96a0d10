//! Tenure's two scripts by hand, on one connection: the limit. A lock that is taken is asked for again every millisecond.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, Value, cmd};
use tenure::ClientId;
use tenure_bench::options::Options;

use super::only;
use super::ours::LEASE;
use crate::Fault;
use crate::crowd::{Client, Lock};

macro_rules! lua {
    ($($name:literal),*) => {
        concat!($(include_str!(concat!("../../../../../crates/tenure/src/backends/redis/scripts/", $name))),*)
    };
}

const ACQUIRE: &str = lua!("more.lua", "token.lua", "layout_redisson.lua", "acquire.lua");
const RELEASE: &str = lua!("tell.lua", "layout_redisson.lua", "release.lua");
/// The default of a locker, in milliseconds.
const TOKEN_IDLE: &str = "604800000";
const PAUSE: Duration = Duration::from_millis(1);

/// A connection, and what is sent over it.
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
}

struct Shared {
    client: ClientId,
    owners: AtomicU64,
    acquire: String,
    release: String,
    lease: String,
}

impl Raw {
    /// The connection lives on the runtime that this is called on.
    pub(crate) async fn connect(options: &Options) -> Result<Self, Fault> {
        only(options, &["mutex"])?;
        let [url] = &*options.urls else { return Err("talks to one server".into()) };
        let mut connection = connect(url).await?;
        for text in [ACQUIRE, RELEASE] {
            cmd("SCRIPT").arg("LOAD").arg(text).exec_async(&mut connection).await?;
        }
        let [acquire, release] = [ACQUIRE, RELEASE].map(|text| Script::new(text).get_hash().to_owned());
        let lease = options.lease_ms.map_or(LEASE, Duration::from_millis).as_millis().to_string();
        let shared = Shared { client: ClientId::random()?, owners: AtomicU64::new(1), acquire, release, lease };
        Ok(Self { connection, shared: Arc::new(shared) })
    }
}

/// Fails unless the server knows both scripts. If only the library has talked to it, they are the same.
pub(crate) async fn check_known(url: &str) -> Result<(), Fault> {
    let hashes = [ACQUIRE, RELEASE].map(|text| Script::new(text).get_hash().to_owned());
    let known: Vec<bool> = cmd("SCRIPT").arg("EXISTS").arg(&hashes).query_async(&mut connect(url).await?).await?;
    if known == [true, true] { Ok(()) } else { Err("raw does not send the scripts that the library sends".into()) }
}

/// As the library does it.
pub(crate) async fn connect(url: &str) -> Result<MultiplexedConnection, Fault> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(redis::Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}

impl Client for Raw {
    type Lock = RawLock;

    fn lock(&self, name: &str) -> RawLock {
        RawLock {
            connection: self.connection.clone(),
            shared: Arc::clone(&self.shared),
            lock: name.to_owned(),
            token: format!("redisson_lock_token:{{{name}}}"),
            channel: format!("redisson_lock__channel:{{{name}}}"),
        }
    }
}

#[derive(Clone)]
pub(crate) struct RawLock {
    connection: MultiplexedConnection,
    shared: Arc<Shared>,
    lock: String,
    token: String,
    channel: String,
}

pub(crate) struct RawHeld {
    owner: String,
    token: u64,
}

impl Lock for RawLock {
    type Held = RawHeld;

    async fn acquire(&mut self, _write: bool) -> Result<RawHeld, Fault> {
        let Shared { client, owners, acquire, lease, .. } = &*self.shared;
        // Each hold has a number of its own.
        let owner = format!("{client}:{}", owners.fetch_add(1, Ordering::Relaxed));
        loop {
            let mut ask = cmd("EVALSHA");
            ask.arg(acquire).arg(2).arg(&self.lock).arg(&self.token);
            ask.arg(&owner).arg(lease).arg("1").arg(TOKEN_IDLE).arg("");
            let answer: Vec<Value> = ask.query_async(&mut self.connection).await?;
            match &*answer {
                [Value::Int(1), token] => {
                    let token: String = redis::from_redis_value_ref(token)?;
                    return Ok(RawHeld { owner, token: token.parse()? });
                }
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    }

    fn token(held: &RawHeld) -> Option<u64> {
        Some(held.token)
    }

    async fn release(&mut self, held: RawHeld) -> Result<(), Fault> {
        let mut give = cmd("EVALSHA");
        give.arg(&self.shared.release).arg(1).arg(&self.lock).arg(&held.owner).arg(&self.channel).arg("PUBLISH");
        let given: i64 = give.query_async(&mut self.connection).await?;
        if given == 0 { Err("the lock was not held any more".into()) } else { Ok(()) }
    }
}
