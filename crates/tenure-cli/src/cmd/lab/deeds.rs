//! What an actor can be told to do with locks, servers and the shop; each leaves its trace on the timeline.

use std::time::{Duration, Instant};

use super::actor::{Actor, LIMIT, lock};
use super::address::Place;
use super::crowd::Crowd;
use super::timeline::{During, Moment};
use super::upset::{Played, Upset};
use super::words::{Answer, Check, Lock, Value, Word};

/// How long a crowd may take to gather, and to disperse.
const CROWD_LIMIT: Duration = Duration::from_secs(60);

impl Actor {
    /// Sends a command to a server. What comes back is shown on the timeline.
    pub(crate) fn redis(&mut self, server: &impl Place, command: &[&str]) -> Played<Value> {
        let value = self.redis_quietly(server, command)?;
        self.did(&format!("{} → {value}", command.join(" ")));
        Ok(value)
    }

    /// The same without a trace on the timeline.
    pub(crate) fn redis_quietly(&mut self, server: &impl Place, command: &[&str]) -> Played<Value> {
        let command = command.iter().map(ToString::to_string).collect();
        match self.ask(&Word::Redis { port: server.port(), command })? {
            (_, Answer::Value(value)) => Ok(value),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Connects, so that the story does not wait for that.
    pub(crate) fn prepare(&mut self, with: &Lock) -> Played<()> {
        match self.ask(&Word::Prepare(with.clone()))? {
            (_, Answer::Ready { known_as }) => {
                lock(&self.company.known_as).extend(known_as.map(|known_as| (known_as, self.name.clone())));
                Ok(())
            }
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Asks once for a lock.
    pub(crate) fn try_take(&mut self, wanted: &Lock) -> Played<bool> {
        let (at, answer) = self.ask(&Word::Take { lock: wanted.clone(), wait: None })?;
        self.granted_or_not(at, &answer)
    }

    /// The same where it may not work out; why it did not.
    pub(crate) fn try_take_or_why(&mut self, wanted: &Lock) -> Played<Result<bool, Upset>> {
        self.tell(&Word::Take { lock: wanted.clone(), wait: None })?;
        match self.any_answer(LIMIT)? {
            (at, Answer::Failed(why)) => {
                self.company.notes.mark(self.lane, at, Moment::Told, format!("is not granted the lock: {why}"));
                Ok(Err(why))
            }
            (at, answer) => self.granted_or_not(at, &answer).map(Ok),
        }
    }

    /// The token of what it took last.
    pub(crate) fn token(&self) -> Option<u64> {
        self.token
    }

    /// Waits for a lock.
    pub(crate) fn take(&mut self, wanted: &Lock, wait: Duration) -> Played<bool> {
        self.begin_to_take(wanted, wait)?;
        self.taken()
    }

    /// Begins to wait for a lock. What comes of it says [`taken`](Self::taken).
    pub(crate) fn begin_to_take(&mut self, wanted: &Lock, wait: Duration) -> Played<()> {
        self.begin_to_wait(Some(wait));
        self.tell(&Word::Take { lock: wanted.clone(), wait: Some(wait) })
    }

    pub(crate) fn taken(&mut self) -> Played<bool> {
        Ok(self.taken_at()?.is_some())
    }

    /// When it was granted, if it was.
    pub(crate) fn taken_at(&mut self) -> Played<Option<Instant>> {
        let limit = self.waiting.and_then(|(_, limit, _)| limit).unwrap_or_default() + LIMIT;
        let (at, answer) = self.answer(limit)?;
        let granted = matches!(answer, Answer::Granted { .. });
        self.end_waiting(at, granted);
        Ok(self.granted_or_not(at, &answer)?.then_some(at))
    }

    /// Asks over and over, as the naive do. `ask` sends commands and says whether they were granted.
    pub(crate) fn insist(
        &mut self,
        every: Duration,
        limit: Duration,
        mut ask: impl FnMut(&mut Self) -> Played<bool>,
    ) -> Played<bool> {
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
        self.waiting = Some((now, limit, self.company.notes.begin(self.lane, now, During::Waits, "waits")));
    }

    pub(crate) fn end_waiting(&mut self, at: Instant, granted: bool) {
        let Some((since, _, span)) = self.waiting.take() else { return };
        self.company.notes.end(span, at);
        let mut waits = lock(&self.company.waits);
        waits.total += at.saturating_duration_since(since);
        waits.in_vain += u64::from(!granted);
        drop(waits);
        if !granted {
            self.did("gives up");
        }
    }

    /// Notes that commands of the story got it the lock.
    pub(crate) fn granted(&mut self) -> Played<()> {
        self.granted_with(None)
    }

    /// The same with the token that they got.
    pub(crate) fn granted_with(&mut self, token: Option<u64>) -> Played<()> {
        let (at, answer) = self.ask(&Word::Granted { token })?;
        self.granted_or_not(at, &answer).map(drop)
    }

    fn granted_or_not(&mut self, at: Instant, answer: &Answer) -> Played<bool> {
        match answer {
            Answer::Granted { token } => {
                self.token = *token;
                let notes = &self.company.notes;
                let mut beliefs = lock(&self.told.beliefs);
                if beliefs.is_empty() {
                    let text = token.map_or_else(|| "holds".to_owned(), |token| format!("holds, token {token}"));
                    beliefs.push(Some(notes.begin(self.lane, at, During::Believes, text)));
                } else {
                    beliefs.push(None);
                    notes.mark(self.lane, at, Moment::Did, "enters again");
                }
                Ok(true)
            }
            Answer::Busy => Ok(false),
            other => Err(self.confused(other)),
        }
    }

    /// Gives back what it took last. False if that was not its own any more, and it could know.
    pub(crate) fn give_back(&mut self) -> Played<bool> {
        let (at, answer) = self.ask(&Word::GiveBack)?;
        let belief = lock(&self.told.beliefs).pop().flatten();
        if let Some(belief) = belief {
            self.company.notes.end(belief, at);
        }
        match answer {
            Answer::Is(held) => Ok(held),
            other => Err(self.confused(&other)),
        }
    }

    /// Whether it thinks that it still holds what it took last.
    pub(crate) fn is_held(&mut self) -> Played<bool> {
        self.yes_or_no(&Word::IsHeld)
    }

    /// Whether what it took last is still renewed. It does not know that itself.
    pub(crate) fn is_renewed(&mut self) -> Played<bool> {
        self.yes_or_no(&Word::IsRenewed)
    }

    fn yes_or_no(&mut self, question: &Word) -> Played<bool> {
        match self.ask(question)? {
            (_, Answer::Is(yes)) => Ok(yes),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many wait for a lock of Tenure's, as far as the store says.
    pub(crate) fn waiters(&mut self, wanted: &Lock) -> Played<u32> {
        let Lock::Tenure(wanted) = wanted else { return Err(Upset::new("nobody can tell who waits for such a lock")) };
        match self.ask(&Word::Waiters(wanted.clone()))? {
            (_, Answer::Waiting(n)) => Ok(n),
            (_, other) => Err(self.confused(&other)),
        }
    }

    pub(crate) fn subscribe(&mut self, server: &impl Place, channel: &str) -> Played<()> {
        self.ask(&Word::Subscribe { port: server.port(), channel: channel.to_owned() })?;
        self.did(&format!("SUBSCRIBE {channel}"));
        Ok(())
    }

    /// Waits for a message on the channel.
    pub(crate) fn hear(&mut self, limit: Duration) -> Played<bool> {
        self.tell(&Word::Hear { limit })?;
        match self.answer(limit + LIMIT)? {
            (_, Answer::Is(heard)) => Ok(heard),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// How many units it sees in the shop.
    pub(crate) fn look(&mut self) -> Played<i64> {
        match self.ask(&Word::Look)? {
            (_, Answer::Units(units)) => Ok(units),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Lets the shop check its writes in this way from now on.
    pub(crate) fn check(&mut self, check: Check) -> Played<()> {
        self.ask(&Word::Check(check)).map(drop)
    }

    /// Sells one of the units that it has seen, whatever has happened since. False if the shop refused.
    pub(crate) fn sell(&mut self) -> Played<bool> {
        let (at, answer) = self.ask(&Word::Sell)?;
        self.sold(at, &answer)
    }

    /// Looks under the guard of what it took last, and stays ready to sell. How many units it sees.
    pub(crate) fn begin_sale(&mut self) -> Played<i64> {
        match self.ask(&Word::BeginSale)? {
            (_, Answer::Units(units)) => Ok(units),
            (_, other) => Err(self.confused(&other)),
        }
    }

    /// Sells under that guard. False if the shop refused, `None` if the guard did not let it come to that.
    pub(crate) fn end_sale(&mut self) -> Played<Option<bool>> {
        let (at, answer) = self.ask(&Word::EndSale)?;
        if matches!(answer, Answer::Stopped(_)) {
            self.did("its guard has ended the work: nothing is written");
            return Ok(None);
        }
        self.sold(at, &answer).map(Some)
    }

    fn sold(&self, at: Instant, answer: &Answer) -> Played<bool> {
        let (what, text) = match answer {
            Answer::Sold { stale: false } => (Moment::Sold, "sells one"),
            Answer::Sold { stale: true } => (Moment::Stale, "sells one though another was granted the lock since"),
            Answer::Refused => (Moment::Refused, "the shop refuses: its token is out of date"),
            Answer::Overtaken => (Moment::Refused, "the shop refuses: somebody has written since it looked"),
            other => return Err(self.confused(other)),
        };
        self.company.notes.mark(self.lane, at, what, text);
        Ok(what != Moment::Refused)
    }

    /// Becomes a crowd, all of whom wait for the same lock.
    pub(crate) fn begin_to_gather(&mut self, crowd: &Crowd) -> Played<()> {
        self.tell(&Word::Gather(crowd.clone()))
    }

    pub(crate) fn gathered(&mut self, crowd: &Crowd) -> Played<()> {
        let (at, Answer::Gathered { known_as }) = self.answer(CROWD_LIMIT)? else {
            return Err(Upset::new(format!("{} is no crowd", self.name)));
        };
        lock(&self.company.known_as).extend(known_as);
        let text = format!("{} clients wait and sell", crowd.clients);
        self.waiting = Some((at, None, self.company.notes.begin(self.lane, at, During::Waits, text)));
        Ok(())
    }

    /// Sends the crowd home.
    pub(crate) fn disperse(&mut self) -> Played<()> {
        self.tell(&Word::Disperse)?;
        match self.answer(CROWD_LIMIT)? {
            (at, Answer::Dispersed { waited }) => {
                if let Some((_, _, span)) = self.waiting.take() {
                    self.company.notes.end(span, at);
                }
                lock(&self.company.waits).total += waited;
                Ok(())
            }
            (_, other) => Err(self.confused(&other)),
        }
    }
}
