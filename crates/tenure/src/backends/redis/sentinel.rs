//! Sentinels: they know where the master is, and say when it changes.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::{AsyncConnectionConfig, PushInfo, PushKind, Value, cmd};
use tracing::{debug, info, warn};

use super::connection::Connection;
use super::dial::{Dial, Server};
use super::fault::{Failure, NAME, is_unknown_command};
use super::link::Link;
use super::reply::{field, int, text};
use super::shared::lock;
use super::slots::Address;
use crate::error::{Error, Fault, Result};
use crate::retry::jitter;

/// How long the others may take once one has answered: it may be the one that is behind the times.
const GRACE: Duration = Duration::from_millis(100);

/// How often a sentinel is asked whether it is still there: a connection to it is silent for months otherwise.
const PULSE: Duration = Duration::from_secs(5);

pub(super) struct Sentinels {
    master: String,
    sentinels: Vec<Sentinel>,
    /// How to reach the servers that they name.
    dial: Dial,
    timeout: Duration,
    link: OnceLock<Weak<Link>>,
}

struct Sentinel {
    at: String,
    server: Server,
    live: Mutex<Option<Connection>>,
}

/// Where a sentinel says that the master is. The larger epoch is the later truth.
type View = (i64, Address);

impl Sentinels {
    pub(super) fn new(master: String, at: &[Address], login: &Dial, dial: Dial, timeout: Duration) -> Arc<Self> {
        let sentinel =
            |at: &Address| Sentinel { at: format!("{}:{}", at.0, at.1), server: login.server(at), live: Mutex::default() };
        let sentinels = at.iter().map(sentinel).collect();
        Arc::new(Self { master, sentinels, dial, timeout, link: OnceLock::new() })
    }

    /// One sentinel, however it is reached.
    #[cfg(any(test, fuzzing))]
    pub(super) fn behind(server: Server, dial: Dial, timeout: Duration) -> Self {
        let sentinel = Sentinel { at: "made:1".to_owned(), server, live: Mutex::default() };
        Self { master: "main".to_owned(), sentinels: vec![sentinel], dial, timeout, link: OnceLock::new() }
    }

    /// The server that is the master, by the latest word of all sentinels that answer.
    pub(super) async fn master(&self) -> Result<Server> {
        Ok(self.dial.server(&self.address().await?))
    }

    pub(super) async fn address(&self) -> Result<Address> {
        let mut asked: FuturesUnordered<_> = self.sentinels.iter().map(|sentinel| self.view(sentinel)).collect();
        let (mut views, mut troubles) = (Vec::new(), Vec::new());
        loop {
            let next = tokio::select! {
                next = asked.next() => next,
                () = tokio::time::sleep(GRACE), if !views.is_empty() => None,
            };
            match next {
                Some(Ok(view)) => views.push(view),
                Some(Err(e)) => troubles.push(e),
                None => break,
            }
        }
        if let Some((_, address)) = believed(&views) {
            return Ok(address.clone());
        }
        // Final only if none of them can come to another answer.
        if let (Some(refusal), true) = (troubles.first(), troubles.iter().all(|e| !e.is_transient())) {
            return Err(refusal.clone());
        }
        let all: Vec<String> = troubles.iter().map(ToString::to_string).collect();
        let error = Error::unavailable(NAME, "asking the sentinels for the master", Fault::Connection, all.join("; "));
        Err(match troubles.into_iter().next() {
            Some(first) => error.with_source(first),
            None => error,
        })
    }

    async fn view(&self, sentinel: &Sentinel) -> Result<View> {
        let late = || Error::unavailable(NAME, format!("asking the sentinel {}", sentinel.at), Fault::Timeout, "no answer");
        let asked = tokio::time::timeout(self.timeout, self.ask(sentinel)).await.unwrap_or_else(|_| Err(late()));
        if asked.as_ref().is_err_and(Error::is_transient) {
            *lock(&sentinel.live) = None;
        }
        asked
    }

    async fn ask(&self, sentinel: &Sentinel) -> Result<View> {
        let doing = format!("asking the sentinel {}", sentinel.at);
        let failed = |e| Failure::of(&doing, &e).error;
        let live = lock(&sentinel.live).clone();
        let connection = match live {
            Some(connection) => connection,
            // Without pushes, and only for this question.
            None => sentinel.server.connect(config(), self.timeout).await.map_err(failed)?,
        };
        let (mut one, mut other) = (connection.clone(), connection);
        let (mut address, mut about) = (cmd("SENTINEL"), cmd("SENTINEL"));
        address.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
        about.arg("MASTER").arg(&self.master);
        let (address, about) =
            tokio::join!(address.query_async::<Option<(String, u16)>>(&mut one), about.query_async::<Value>(&mut other));
        if let Err(e) = &address
            && is_unknown_command(e)
        {
            let asked = format!("{} among the sentinels", sentinel.at);
            return Err(Error::config(asked, "is no sentinel", "sentinels, by default on port 26379"));
        }
        let address = address.map_err(failed)?.ok_or_else(|| {
            let problem = format!("is unknown to the sentinel {}", sentinel.at);
            Error::config(format!("the master {:?}", self.master), problem, "a name that SENTINEL MASTERS lists")
        })?;
        // A user that may not ask for the epoch takes all answers as equal.
        let epoch = about.ok().as_ref().and_then(|about| field(about, "config-epoch")).and_then(int);
        Ok((epoch.unwrap_or_default(), address))
    }

    /// Keeps a connection to every sentinel, so that the link hears at once when the master has changed: one alone may be
    /// on the machine that died.
    pub(super) fn watch(self: &Arc<Self>, link: &Arc<Link>) {
        let _set_once = self.link.set(Arc::downgrade(link));
        for i in 0..self.sentinels.len() {
            let me = Arc::downgrade(self);
            link.shared.runtime.spawn(async move {
                let mut was_alive = true;
                while let Some(sentinels) = me.upgrade().filter(|sentinels| !sentinels.is_closed()) {
                    let pulse = tokio::time::timeout(sentinels.timeout, sentinels.pulse(i)).await;
                    let alive = matches!(pulse, Ok(Ok(())));
                    if !alive {
                        *lock(&sentinels.sentinels[i].live) = None;
                    }
                    if was_alive && !alive {
                        let sentinel = &sentinels.sentinels[i].at;
                        warn!(sentinel, error = ?pulse.map(Result::err), "a sentinel does not tell us of a new master");
                    }
                    was_alive = alive;
                    drop(sentinels);
                    let pause = if alive { PULSE } else { PULSE / 5 };
                    tokio::time::sleep(pause / 2 + jitter(pause)).await;
                }
            });
        }
    }

    /// Gives back the connections.
    pub(super) fn close(&self) {
        self.sentinels.iter().for_each(|sentinel| *lock(&sentinel.live) = None);
    }

    fn is_closed(&self) -> bool {
        self.link().is_none_or(|link| link.shared.closed.load(Ordering::Relaxed))
    }

    fn link(&self) -> Option<Arc<Link>> {
        self.link.get().and_then(Weak::upgrade)
    }

    /// Makes sure that a sentinel is there and tells us.
    async fn pulse(self: &Arc<Self>, i: usize) -> redis::RedisResult<()> {
        let sentinel = &self.sentinels[i];
        let live = lock(&sentinel.live).clone();
        if let Some(mut connection) = live {
            return cmd("PING").query_async(&mut connection).await;
        }
        let me = Arc::downgrade(self);
        let config = config().set_push_sender(move |push| {
            if let Some(sentinels) = me.upgrade() {
                sentinels.on_push(i, &push);
            }
            Ok::<(), ()>(())
        });
        let connection = sentinel.server.connect(config, self.timeout).await?;
        connection.subscribe("+switch-master").await?;
        if self.is_closed() {
            return Ok(());
        }
        *lock(&sentinel.live) = Some(connection);
        debug!(sentinel = sentinel.at, "listening for a new master");
        // What was said before we listened.
        if let (Some(link), Ok((host, port))) = (self.link(), self.address().await) {
            link.moved_to(&format!("{host}:{port}"));
        }
        Ok(())
    }

    fn on_push(&self, i: usize, push: &PushInfo) {
        match push.kind {
            PushKind::Message => {
                let words: Vec<&str> = push.data.get(1).and_then(text).unwrap_or_default().split(' ').collect();
                if let ([name, _, _, host, port], Some(link)) = (&*words, self.link())
                    && *name == self.master
                {
                    info!(name, host, port, sentinel = self.sentinels[i].at, "the master has changed");
                    link.moved_to(&format!("{host}:{port}"));
                }
            }
            PushKind::Disconnection => *lock(&self.sentinels[i].live) = None,
            _ => {}
        }
    }
}

fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(None)
}

fn votes(views: &[View], view: &View) -> usize {
    views.iter().filter(|other| *other == view).count()
}

/// The latest word; among equals, that of the most.
fn believed(views: &[View]) -> Option<&View> {
    views.iter().max_by_key(|view| (view.0, votes(views, view)))
}

impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<&str> = self.sentinels.iter().map(|sentinel| &*sentinel.at).collect();
        write!(f, "{} by {}", self.master, all.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_word_counts_and_then_that_of_the_most() {
        let view = |epoch, port| (epoch, ("host".to_owned(), port));
        assert_eq!(believed(&[]), None);
        assert_eq!(believed(&[view(3, 1), view(3, 1), view(4, 2)]), Some(&view(4, 2)));
        assert_eq!(believed(&[view(3, 9), view(3, 1), view(3, 1)]), Some(&view(3, 1)));
        assert_eq!(believed(&[view(3, 1), view(3, 1), view(3, 9)]), Some(&view(3, 1)));
    }
}
