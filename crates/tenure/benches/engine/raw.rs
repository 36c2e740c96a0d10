//! Tenure's two scripts by hand, on one connection: what its round trips cost at least.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, IntoConnectionInfo, Script, cmd};
use tenure::ClientId;
use tokio::runtime::Runtime;

use super::measure::{Contender, crowd};
use tenure_testkit::RedisServer;

const ACQUIRE: &str = concat!(
    include_str!("../../src/backends/redis/scripts/more.lua"),
    include_str!("../../src/backends/redis/scripts/token.lua"),
    include_str!("../../src/backends/redis/scripts/layout_redisson.lua"),
    include_str!("../../src/backends/redis/scripts/acquire.lua"),
);
const RELEASE: &str = concat!(
    include_str!("../../src/backends/redis/scripts/tell.lua"),
    include_str!("../../src/backends/redis/scripts/layout_redisson.lua"),
    include_str!("../../src/backends/redis/scripts/release.lua"),
);
/// The defaults of a locker, in milliseconds.
const LEASE: &str = "30000";
const TOKEN_IDLE: &str = "604800000";

fn hashes() -> [String; 2] {
    [ACQUIRE, RELEASE].map(|text| Script::new(text).get_hash().to_owned())
}

/// Whether the server knows both scripts. One that only the library has talked to shows that they are the same.
pub(crate) fn are_known(server: &RedisServer) -> bool {
    let known: Vec<bool> = cmd("SCRIPT").arg("EXISTS").arg(&hashes()).query(&mut server.raw()).expect("asked");
    known == [true, true]
}

/// How many commands the server has run, those of scripts among them, and how many scripts.
pub(crate) fn calls(server: &RedisServer) -> [f64; 2] {
    let info: String = cmd("INFO").arg("commandstats").query(&mut server.raw()).expect("asked");
    let mut calls = [0.0; 2];
    for line in info.lines().filter_map(|line| line.strip_prefix("cmdstat_")) {
        let (name, rest) = line.split_once(":calls=").expect("a count");
        let n: f64 = rest.split(',').next().and_then(|n| n.parse().ok()).expect("a number");
        // This question.
        if name != "info" {
            calls[0] += n;
        }
        if name.starts_with("eval") {
            calls[1] += n;
        }
    }
    calls
}

/// A connection, and what is sent over it.
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    client: ClientId,
    hashes: [String; 2],
}

impl Raw {
    /// The connection lives on the runtime that this is called on.
    pub(crate) async fn connect(server: &RedisServer) -> Self {
        let info = server.url().into_connection_info().expect("a URL");
        // As the library does.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(info).expect("a client");
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("connected");
        for text in [ACQUIRE, RELEASE] {
            cmd("SCRIPT").arg("LOAD").arg(text).exec_async(&mut connection).await.expect("loaded");
        }
        Self { connection, client: ClientId::random().expect("random bits"), hashes: hashes() }
    }

    /// Tasks that lock and release names of their own.
    pub(crate) fn contender<'a>(&'a self, name: &'static str, runtime: &'a Runtime, tasks: usize) -> Contender<'a> {
        Contender::new(name, move || {
            crowd(runtime, tasks, |n, mut laps| {
                let (mut connection, client, [acquire, release]) = (self.connection.clone(), self.client, self.hashes.clone());
                let lock = format!("{name}:{n:02}");
                let (token, channel) = (format!("redisson_lock_token:{{{lock}}}"), format!("redisson_lock__channel:{{{lock}}}"));
                async move {
                    while laps.go_on() {
                        // Each hold has a number of its own.
                        let owner = format!("{client}:{}", laps.done());
                        let mut ask = cmd("EVALSHA");
                        ask.arg(&acquire).arg(2).arg(&lock).arg(&token);
                        ask.arg(&owner).arg(LEASE).arg("1").arg(TOKEN_IDLE).arg("");
                        let (granted, _): (i64, String) = ask.query_async(&mut connection).await.expect("asked");
                        let mut give = cmd("EVALSHA");
                        give.arg(&release).arg(1).arg(&lock).arg(&owner).arg(&channel).arg("PUBLISH");
                        let given: i64 = give.query_async(&mut connection).await.expect("asked");
                        assert_eq!((granted, given), (1, 1), "granted, and given back");
                    }
                    laps.done()
                }
            })
        })
    }
}
