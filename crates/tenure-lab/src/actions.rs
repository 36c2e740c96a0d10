//! The actions of an actor with locks, servers and the shop. Each is shown on the timeline.

use std::time::{Duration, Instant};

use crate::actor::{Actor, LIMIT, lock};
use crate::crowd::Crowd;
use crate::error::{LabError, Result};
use crate::protocol::{Check, LockSpec, Reply, Request, Value};
use crate::timeline::{During, Moment};
use crate::virtual_address::HasPort;

/// How long a crowd may take to gather, and to disperse.
const CROWD_LIMIT: Duration = Duration::from_secs(60);

impl Actor {
    /// Sends a command to a server. What comes back is shown on the timeline.
    pub(crate) fn redis(&mut self, server: &impl HasPort, command: &[&str]) -> Result<Value> {
        let value = self.redis_quietly(server, command)?;
        self.did(&format!("{} → {value}", command.join(" ")));
        Ok(value)
    }

    /// The same without a trace on the timeline.
    pub(crate) fn redis_quietly(&mut self, server: &impl HasPort, command: &[&str]) -> Result<Value> {
        let command = command.iter().map(ToString::to_string).collect();
        match self.ask(&Request::Redis { port: server.port(), command })? {
            (_, Reply::Value(value)) => Ok(value),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Connects, so that the story does not wait for that.
    pub(crate) fn prepare(&mut self, with: &LockSpec) -> Result<()> {
        match self.ask(&Request::Prepare(with.clone()))? {
            (_, Reply::Ready { known_as }) => {
                lock(&self.context.known_as).extend(known_as.map(|known_as| (known_as, self.name.clone())));
                Ok(())
            }
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Asks once for a lock.
    pub(crate) fn try_take(&mut self, wanted: &LockSpec) -> Result<bool> {
        let (at, reply) = self.ask(&Request::Take { lock: wanted.clone(), wait: None })?;
        self.granted_or_not(at, &reply)
    }

    /// The same where it may not work out; why it did not.
    pub(crate) fn try_take_or_why(&mut self, wanted: &LockSpec) -> Result<Result<bool, LabError>> {
        self.tell(&Request::Take { lock: wanted.clone(), wait: None })?;
        match self.any_reply(LIMIT)? {
            (at, Reply::Failed(why)) => {
                self.context.recorder.mark(self.lane, at, Moment::Told, format!("is not granted the lock: {why}"));
                Ok(Err(why))
            }
            (at, reply) => self.granted_or_not(at, &reply).map(Ok),
        }
    }

    /// The token of what it took last.
    pub(crate) fn token(&self) -> Option<u64> {
        self.token
    }

    /// Waits for a lock.
    pub(crate) fn take(&mut self, wanted: &LockSpec, wait: Duration) -> Result<bool> {
        self.begin_to_take(wanted, wait)?;
        self.taken()
    }

    /// Begins to wait for a lock. What comes of it says [`taken`](Self::taken).
    pub(crate) fn begin_to_take(&mut self, wanted: &LockSpec, wait: Duration) -> Result<()> {
        self.begin_to_wait(Some(wait));
        self.tell(&Request::Take { lock: wanted.clone(), wait: Some(wait) })
    }

    pub(crate) fn taken(&mut self) -> Result<bool> {
        Ok(self.taken_at()?.is_some())
    }

    /// When it was granted, if it was.
    pub(crate) fn taken_at(&mut self) -> Result<Option<Instant>> {
        let limit = self.waiting.and_then(|(_, limit, _)| limit).unwrap_or_default() + LIMIT;
        let (at, reply) = self.reply(limit)?;
        let granted = matches!(reply, Reply::Granted { .. });
        self.end_waiting(at, granted);
        Ok(self.granted_or_not(at, &reply)?.then_some(at))
    }

    /// Asks over and over, as the naive do. `ask` sends commands and says whether they were granted.
    pub(crate) fn insist(
        &mut self,
        every: Duration,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<bool> {
        let give_up = Instant::now() + limit;
        self.begin_to_wait(Some(limit));
        let granted = loop {
            if ask(self)? {
                break true;
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break false;
            }
            std::thread::sleep(every.min(left));
        };
        self.end_waiting(Instant::now(), granted);
        if granted {
            self.granted()?;
        }
        Ok(granted)
    }

    pub(crate) fn begin_to_wait(&mut self, limit: Option<Duration>) {
        let now = Instant::now();
        self.waiting = Some((now, limit, self.context.recorder.begin(self.lane, now, During::Waits, "waits")));
    }

    pub(crate) fn end_waiting(&mut self, at: Instant, granted: bool) {
        let Some((since, _, span)) = self.waiting.take() else { return };
        self.context.recorder.end(span, at);
        let mut waits = lock(&self.context.waits);
        waits.total += at.saturating_duration_since(since);
        waits.in_vain += u64::from(!granted);
        drop(waits);
        if !granted {
            self.did("gives up");
        }
    }

    /// Notes that commands of the story got it the lock.
    pub(crate) fn granted(&mut self) -> Result<()> {
        self.granted_with(None)
    }

    /// The same with the token that they got.
    pub(crate) fn granted_with(&mut self, token: Option<u64>) -> Result<()> {
        let (at, reply) = self.ask(&Request::Granted { token })?;
        self.granted_or_not(at, &reply).map(drop)
    }

    fn granted_or_not(&mut self, at: Instant, reply: &Reply) -> Result<bool> {
        match reply {
            Reply::Granted { token } => {
                self.token = *token;
                let recorder = &self.context.recorder;
                let mut beliefs = lock(&self.told.beliefs);
                if beliefs.is_empty() {
                    let text = token.map_or_else(|| "holds".to_owned(), |token| format!("holds, token {token}"));
                    beliefs.push(Some(recorder.begin(self.lane, at, During::Believes, text)));
                } else {
                    beliefs.push(None);
                    recorder.mark(self.lane, at, Moment::Did, "enters again");
                }
                Ok(true)
            }
            Reply::Busy => Ok(false),
            other => Err(self.confused(other)),
        }
    }

    /// Gives back what it took last. False if that was not its own any more, and it could know.
    pub(crate) fn give_back(&mut self) -> Result<bool> {
        let (at, reply) = self.ask(&Request::GiveBack)?;
        let belief = lock(&self.told.beliefs).pop().flatten();
        if let Some(belief) = belief {
            self.context.recorder.end(belief, at);
        }
        match reply {
            Reply::Is(held) => Ok(held),
            other => Err(self.confused(&other)),
        }
    }

    /// Whether it thinks that it still holds what it took last.
    pub(crate) fn is_held(&mut self) -> Result<bool> {
        self.yes_or_no(&Request::IsHeld)
    }

    /// Whether what it took last is still renewed. It does not know that itself.
    pub(crate) fn is_renewed(&mut self) -> Result<bool> {
        self.yes_or_no(&Request::IsRenewed)
    }

    fn yes_or_no(&mut self, question: &Request) -> Result<bool> {
        match self.ask(question)? {
            (_, Reply::Is(yes)) => Ok(yes),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many wait for a lock of Tenure's, as far as the store says.
    pub(crate) fn waiters(&mut self, wanted: &LockSpec) -> Result<u32> {
        let LockSpec::Tenure(wanted) = wanted else { return Err(LabError::new("nobody can tell who waits for such a lock")) };
        match self.ask(&Request::Waiters(wanted.clone()))? {
            (_, Reply::Waiting(n)) => Ok(n),
            (_, other) => Err(self.confused(&other)),
        }
    }

    pub(crate) fn subscribe(&mut self, server: &impl HasPort, channel: &str) -> Result<()> {
        self.ask(&Request::Subscribe { port: server.port(), channel: channel.to_owned() })?;
        self.did(&format!("SUBSCRIBE {channel}"));
        Ok(())
    }

    /// Waits for a message on the channel.
    pub(crate) fn hear(&mut self, limit: Duration) -> Result<bool> {
        self.tell(&Request::Hear { limit })?;
        match self.reply(limit + LIMIT)? {
            (_, Reply::Is(heard)) => Ok(heard),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many units it sees in the shop.
    pub(crate) fn look(&mut self) -> Result<i64> {
        match self.ask(&Request::Look)? {
            (_, Reply::Units(units)) => Ok(units),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Lets the shop check its writes in this way from now on.
    pub(crate) fn check(&mut self, check: Check) -> Result<()> {
        self.ask(&Request::Check(check)).map(drop)
    }

    /// Sells one of the units that it has seen, whatever has happened since. False if the shop refused.
    pub(crate) fn sell(&mut self) -> Result<bool> {
        let (at, reply) = self.ask(&Request::Sell)?;
        self.sold(at, &reply)
    }

    /// Looks under the guard of what it took last, and stays ready to sell. How many units it sees.
    pub(crate) fn begin_sale(&mut self) -> Result<i64> {
        match self.ask(&Request::BeginSale)? {
            (_, Reply::Units(units)) => Ok(units),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Sells under that guard. False if the shop refused, `None` if the guard did not let it come to that.
    pub(crate) fn end_sale(&mut self) -> Result<Option<bool>> {
        let (at, reply) = self.ask(&Request::EndSale)?;
        if matches!(reply, Reply::Stopped(_)) {
            self.did("its guard has ended the work: nothing is written");
            return Ok(None);
        }
        self.sold(at, &reply).map(Some)
    }

    fn sold(&self, at: Instant, reply: &Reply) -> Result<bool> {
        let (what, text) = match reply {
            Reply::Sold { stale: false } => (Moment::Sold, "sells one"),
            Reply::Sold { stale: true } => (Moment::Stale, "sells one though another was granted the lock since"),
            Reply::Refused => (Moment::Refused, "the shop refuses: its token is out of date"),
            Reply::Overtaken => (Moment::Refused, "the shop refuses: somebody has written since it looked"),
            other => return Err(self.confused(other)),
        };
        self.context.recorder.mark(self.lane, at, what, text);
        Ok(what != Moment::Refused)
    }

    /// Becomes a crowd of clients that all wait for the same lock.
    pub(crate) fn start_crowd(&mut self, crowd: &Crowd) -> Result<()> {
        self.tell(&Request::StartCrowd(crowd.clone()))
    }

    pub(crate) fn crowd_started(&mut self, crowd: &Crowd) -> Result<()> {
        let (at, Reply::CrowdStarted { known_as }) = self.reply(CROWD_LIMIT)? else {
            return Err(LabError::new(format!("{} is no crowd", self.name)));
        };
        lock(&self.context.known_as).extend(known_as);
        let text = format!("{} clients wait and sell", crowd.clients);
        self.waiting = Some((at, None, self.context.recorder.begin(self.lane, at, During::Waits, text)));
        Ok(())
    }

    /// Sends the crowd home.
    pub(crate) fn stop_crowd(&mut self) -> Result<()> {
        self.tell(&Request::StopCrowd)?;
        match self.reply(CROWD_LIMIT)? {
            (at, Reply::CrowdStopped { waited }) => {
                if let Some((_, _, span)) = self.waiting.take() {
                    self.context.recorder.end(span, at);
                }
                lock(&self.context.waits).total += waited;
                Ok(())
            }
            (_, other) => Err(self.confused(&other)),
        }
    }
}
