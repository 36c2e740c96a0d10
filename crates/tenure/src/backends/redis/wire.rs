//! What goes to the server for each mode other than the exclusive one: which script, with which keys and arguments.

use std::time::Duration;

use redis::Cmd;

use super::Redis;
use super::fault::NAME;
use super::keys;
use super::question::by_hash;
use super::scripts::{FAMILY, Source};
use crate::backend::{Claim, Mode, Queue};
use crate::error::{Error, Fault, Result};
use crate::name::Token;

/// How long numbers live that nobody uses any more.
const NUMBER_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long it is known what an owner has done to a latch, so that asking again does it once.
const REMEMBER: Duration = Duration::from_secs(600);

/// A script with its keys and arguments.
pub(super) struct Call {
    pub(super) source: &'static Source,
    pub(super) keys: Vec<String>,
    pub(super) args: Vec<String>,
}

impl Call {
    pub(super) fn by_hash(&self) -> (&'static Source, Cmd) {
        let keys: Vec<&str> = self.keys.iter().map(String::as_str).collect();
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        (self.source, by_hash(self.source, &keys, &args))
    }
}

/// Claims that one renewal can extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Renews {
    Locks,
    Shares,
    Permits,
}

impl Renews {
    pub(super) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Read | Mode::Write | Mode::Downgrade => Self::Shares,
            Mode::Permits { .. } => Self::Permits,
            _ => Self::Locks,
        }
    }
}

fn millis(d: Duration) -> String {
    d.as_millis().to_string()
}

/// What the largest token of a grant shall be at least, or nothing.
pub(super) fn least(at_least: Option<Token>, tokens: u32) -> Result<String> {
    let Some(first) = at_least else { return Ok(String::new()) };
    let exhausted = || Error::backend(NAME, "acquiring", Fault::TokenExhausted, "the next token would not fit 63 bits");
    Ok(first.plus(u64::from(tokens) - 1).ok_or_else(exhausted)?.to_string())
}

fn place(claim: &Claim) -> String {
    if claim.queue == Queue::Never { "0".to_owned() } else { millis(claim.place_lease()) }
}

impl Redis {
    /// How long the numbers of a semaphore or a latch live.
    fn life(&self, lease: Duration) -> String {
        let idle = self.token_idle.parse().map(Duration::from_millis).unwrap_or(NUMBER_IDLE);
        millis(if idle.is_zero() { NUMBER_IDLE } else { idle }.max(2 * lease))
    }

    pub(super) fn to_acquire(&self, claim: &Claim, at_least: Option<Token>) -> Result<Call> {
        let name = &claim.resource;
        let (owner, lease, idle) = (claim.owner.to_string(), claim.lease_millis().to_string(), self.token_idle.clone());
        let (main, token, note) = (name.as_str().to_owned(), self.layout.token(name).to_string(), claim.note.as_deref());
        let (channel, verb) = (self.layout.channel_of(claim), self.publish().to_owned());
        let least = least(at_least, claim.tokens)?;
        let call = match claim.mode {
            Mode::Fair => {
                let [line, deadlines, ours] = keys::line(name);
                let mut keys = vec![main, token, line, deadlines, ours];
                let mut args = vec![owner, lease, idle, place(claim), self.layout.channel(name).to_string(), verb, least];
                if let Some(note) = note {
                    keys.push(keys::note(name));
                    args.push(note.to_owned());
                }
                Call { source: &FAMILY.fair_acquire, keys, args }
            }
            Mode::Read | Mode::Write | Mode::Downgrade => {
                let how = match claim.mode {
                    Mode::Write => "write",
                    Mode::Downgrade => "downgrade",
                    _ => "read",
                };
                let how = how.to_owned();
                let keys = vec![main, token, keys::writers(name), keys::notes(name), keys::share(name, claim.owner)];
                let mut args = vec![how, owner, lease, claim.tokens.to_string(), idle, place(claim), channel, verb, least];
                args.extend(note.map(str::to_owned));
                Call { source: &FAMILY.rw_acquire, keys, args }
            }
            Mode::Permits { take, of } => {
                let keys = vec![main, keys::held_permits(name, self.counters), keys::notes(name), token];
                let (life, note) = (self.life(claim.lease), note.unwrap_or_default().to_owned());
                let mut args = vec![owner, lease, of.to_string(), idle, life, channel, verb, note, least];
                args.extend(keys::permit_ids(claim.owner, take));
                Call { source: &FAMILY.permits_acquire, keys, args }
            }
            Mode::Resize { .. } if self.counters => {
                // Who of the others holds how many is written nowhere.
                return Err(Error::Unsupported { backend: NAME, what: "resizing with semaphore=counter".to_owned() });
            }
            Mode::Resize { of } => {
                let keys = vec![main, keys::held_permits(name, self.counters), keys::notes(name)];
                Call { source: &FAMILY.permits_resize, keys, args: vec![of.to_string(), self.life(claim.lease), channel, verb] }
            }
            Mode::Exclusive | Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => {
                return self.to_count(claim, channel, verb);
            }
        };
        Ok(call)
    }

    /// What a latch is asked.
    fn to_count(&self, claim: &Claim, channel: String, verb: String) -> Result<Call> {
        let name = &claim.resource;
        let (what, count) = match claim.mode {
            Mode::SetCount { of } => ("set", of),
            Mode::CountDown => ("down", 0),
            Mode::RemoveCount => ("remove", 0),
            _ => ("zero", 0),
        };
        if self.router.slot(name)? != self.router.slot_of_key(&channel) {
            let problem = "has braces, and so another slot than the channel of its latch";
            return Err(Error::config(format!("the latch {name:?}"), problem, "in a cluster: a name without braces"));
        }
        let keys = vec![name.as_str().to_owned(), keys::latch_mark(name, claim.owner)];
        let (owner, life, remember) = (claim.owner.to_string(), self.life(claim.lease), millis(REMEMBER));
        let args = vec![what.to_owned(), owner, count.to_string(), life, remember, channel, verb];
        Ok(Call { source: &FAMILY.latch, keys, args })
    }

    pub(super) fn to_release(&self, claim: &Claim) -> Call {
        let name = &claim.resource;
        let (main, owner) = (name.as_str().to_owned(), claim.owner.to_string());
        let (channel, verb) = (self.layout.channel_of(claim), self.publish().to_owned());
        match claim.mode {
            Mode::Read | Mode::Write | Mode::Downgrade => {
                let keys = vec![main, keys::writers(name), keys::notes(name), keys::share(name, claim.owner)];
                Call { source: &FAMILY.rw_release, keys, args: vec![owner, keys::shares(name), channel, verb] }
            }
            Mode::Permits { take, .. } => {
                let keys = vec![main, keys::held_permits(name, self.counters), keys::notes(name)];
                let mut args = vec![owner, channel, verb];
                args.extend(keys::permit_ids(claim.owner, take));
                Call { source: &FAMILY.permits_release, keys, args }
            }
            _ => {
                let [line, deadlines, ours] = keys::line(name);
                let mut keys = vec![main, line, deadlines, ours];
                keys.extend(claim.note.as_ref().map(|_| keys::note(name)));
                Call { source: &FAMILY.fair_release, keys, args: vec![owner, self.layout.channel(name).to_string(), verb] }
            }
        }
    }

    pub(super) fn to_renew_shares(claims: &[&Claim]) -> Call {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for claim in claims {
            let name = &claim.resource;
            // A writer has no share, and a key that is missing is refused while its slot is on its way.
            let writes = claim.mode == Mode::Write;
            let share = if writes { name.as_str().to_owned() } else { keys::share(name, claim.owner) };
            keys.extend([name.as_str().to_owned(), keys::notes(name), share]);
            args.extend([claim.owner.to_string(), claim.lease_millis().to_string()]);
        }
        Call { source: &FAMILY.rw_renew, keys, args }
    }

    pub(super) fn to_renew_permits(&self, claims: &[&Claim]) -> Call {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for claim in claims {
            let name = &claim.resource;
            let Mode::Permits { take, .. } = claim.mode else { continue };
            keys.extend([name.as_str().to_owned(), keys::held_permits(name, self.counters), keys::notes(name)]);
            args.extend([claim.lease_millis().to_string(), self.life(claim.lease), take.to_string()]);
            args.extend(keys::permit_ids(claim.owner, take));
        }
        Call { source: &FAMILY.permits_renew, keys, args }
    }
}
