//! A Redis server of the lab: it requires the lab's password and counts the requests of clients.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Result;
use crate::launcher::Launcher;
use crate::password;
use crate::redis_server::{RedisServer, Setup};
use crate::request_counter::RequestCounter;

/// How long a server may take to answer the lab.
const LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Server {
    redis: RedisServer,
    counter: RequestCounter,
}

impl Server {
    /// Starts a server in a new directory. To be called from the main thread: the server ends with the calling one.
    pub(crate) fn start(launcher: &Launcher, dir: &Path, setup: Setup) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let setup = setup.password(password::made_up()?);
        let redis = RedisServer::start(&launcher.redis_server, launcher.tied, dir, setup)?;
        let server = Self { redis, counter: RequestCounter::default() };
        server.counter.listen(&server.redis.socket())?;
        Ok(server)
    }

    pub(crate) fn port(&self) -> u16 {
        self.redis.port()
    }

    /// For Tenure, with options such as `lease=1s`.
    pub(crate) fn url(&self, options: &str) -> String {
        password::url(self.port(), options)
    }

    /// A connection of the lab, whose requests are not counted.
    pub(crate) fn lab(&self) -> Result<redis::Connection> {
        Ok(self.redis.connect(LIMIT)?)
    }

    /// Sends one command through [`lab`](Self::lab).
    pub(crate) fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> Result<T> {
        Ok(command_of(command).query(&mut self.lab()?)?)
    }

    /// How many requests clients have sent so far, over all restarts.
    pub(crate) fn requests(&self) -> Result<u64> {
        static MARKERS: AtomicU64 = AtomicU64::new(0);
        let marker = format!("word {}", MARKERS.fetch_add(1, Ordering::Relaxed));
        // A dead or stopped server receives nothing new.
        if self.redis.answers(Duration::from_millis(500)) && self.ask::<String>(&["ECHO", &marker]).is_ok() {
            self.counter.until(&marker)?;
        }
        Ok(self.counter.requests())
    }

    /// The connections of clients other than the lab: their ids, and whether they are subscribed to a channel.
    pub(crate) fn clients(&self) -> Result<Vec<(u64, bool)>> {
        let list: String = self.ask(&["CLIENT", "LIST"])?;
        let client = |line: &str| {
            let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
            let subscribed = field("sub=") != Some("0");
            field("addr=").filter(|addr| addr.starts_with("127.0.0.1:"))?;
            Some((field("id=")?.parse().ok()?, subscribed))
        };
        Ok(list.lines().filter_map(client).collect())
    }

    /// Ends a connection.
    pub(crate) fn cut(&self, client: u64) -> Result<()> {
        self.ask::<u64>(&["CLIENT", "KILL", "ID", &client.to_string()]).map(drop)
    }

    /// SIGKILL: it loses what it has not written.
    pub(crate) fn kill(&self) -> Result<()> {
        Ok(self.redis.kill()?)
    }

    /// Starts it again after [`kill`](Self::kill), on the same port and with what it has written.
    pub(crate) fn restart(&self) -> Result<()> {
        self.redis.restart(&[])?;
        self.counter.listen(&self.redis.socket())
    }

    /// Stops it: it neither answers nor ends connections.
    pub(crate) fn stop(&self) -> Result<()> {
        Ok(self.redis.stop()?)
    }

    pub(crate) fn go_on(&self) -> Result<()> {
        Ok(self.redis.resume()?)
    }
}

/// A command from its words.
pub(crate) fn command_of(words: &[impl AsRef<str>]) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word.as_ref());
    }
    command
}
