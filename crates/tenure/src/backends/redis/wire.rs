//! What goes to the server for each verb and mode: which script, with which keys and arguments.

use std::io::Write as _;
use std::time::Duration;

use redis::{Cmd, RedisWrite as _};

use super::Redis;
use super::fault::NAME;
use super::keys;
use super::question::ScriptCall;
use super::scripts::FAMILY;
use crate::backend::{Claim, Mode, Queue};
use crate::error::{Error, Fault, Result};
use crate::name::Token;

/// How long unused numbers live.
const NUMBER_IDLE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long it is known what an owner has done to a latch, so that asking again does it once.
const REMEMBER: Duration = Duration::from_secs(600);

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

/// How long a position in the queue lives, if there shall be one.
fn position_lease(claim: &Claim) -> String {
    if claim.queue == Queue::Never { "0".to_owned() } else { millis(claim.position_lease()) }
}

impl Redis {
    /// How long the numbers of a semaphore or a latch live.
    fn life(&self, lease: Duration) -> String {
        let idle = self.token_idle.parse().map(Duration::from_millis).unwrap_or(NUMBER_IDLE);
        millis(if idle.is_zero() { NUMBER_IDLE } else { idle }.max(2 * lease))
    }

    /// Adds the owner of a claim.
    fn write_owner(&self, command: &mut Cmd, claim: &Claim) {
        let owner = claim.owner;
        if owner.client != self.client.id {
            return command.write_arg_fmt(owner);
        }
        let mut arg = command.writer_for_next_arg();
        // Memory refuses nothing.
        drop(arg.write_all(self.client_text.as_bytes()).and_then(|()| write!(arg, ":{}", owner.number)));
    }

    pub(super) fn to_acquire(&self, claim: &Claim, at_least: Option<Token>) -> Result<ScriptCall> {
        let (name, least) = (&claim.resource, least(at_least, claim.tokens)?);
        if claim.mode == Mode::Exclusive {
            return Ok(self.to_acquire_lock(claim, &least));
        }
        let (owner, lease, idle) = (claim.owner.to_string(), claim.lease_millis().to_string(), self.token_idle.clone());
        let (main, token, note) = (name.as_str().to_owned(), self.layout.token(name).to_string(), claim.note.as_deref());
        let (channel, verb) = (self.layout.channel_of(claim), self.publish().to_owned());
        let call = match claim.mode {
            Mode::Fair => {
                let [queue, deadlines, ours] = keys::queue(name);
                let mut keys = vec![main, token, queue, deadlines, ours];
                let mut args =
                    vec![owner, lease, idle, position_lease(claim), self.layout.channel(name).to_string(), verb, least];
                if let Some(note) = note {
                    keys.push(keys::note(name));
                    args.push(note.to_owned());
                }
                ScriptCall::new(&FAMILY.fair_acquire, &keys, &args)
            }
            Mode::Read | Mode::Write | Mode::Downgrade => {
                let how = match claim.mode {
                    Mode::Write => "write",
                    Mode::Downgrade => "downgrade",
                    _ => "read",
                };
                let (how, tokens, position) = (how.to_owned(), claim.tokens.to_string(), position_lease(claim));
                let keys = [main, token, keys::writers(name), keys::notes(name), keys::share(name, claim.owner)];
                let mut args = vec![how, owner, lease, tokens, idle, position, channel, verb, least];
                args.extend(note.map(str::to_owned));
                ScriptCall::new(&FAMILY.rw_acquire, &keys, &args)
            }
            Mode::Permits { take, of } => {
                let keys = [main, keys::held_permits(name, self.counters), keys::notes(name), token];
                let (life, note) = (self.life(claim.lease), note.unwrap_or_default().to_owned());
                let mut args = vec![owner, lease, of.to_string(), idle, life, channel, verb, note, least];
                args.extend(keys::permit_ids(claim.owner, take));
                ScriptCall::new(&FAMILY.permits_acquire, &keys, &args)
            }
            Mode::Resize { .. } if self.counters => {
                // Which permits the other clients hold is written nowhere.
                return Err(Error::Unsupported { backend: NAME, what: "resizing with semaphore=counter".to_owned() });
            }
            Mode::Resize { of } => {
                let keys = [main, keys::held_permits(name, self.counters), keys::notes(name)];
                ScriptCall::new(&FAMILY.permits_resize, &keys, &[of.to_string(), self.life(claim.lease), channel, verb])
            }
            Mode::Exclusive | Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => {
                return self.to_count(claim, channel, verb);
            }
        };
        Ok(call)
    }

    /// Written in place, without strings in between: this is the hot path.
    fn to_acquire_lock(&self, claim: &Claim, least: &str) -> ScriptCall {
        let name = &claim.resource;
        let note = claim.note.as_ref().map(|_| keys::note(name));
        let keys = 2 + usize::from(note.is_some());
        let mut call = ScriptCall::with_room(&self.scripts.acquire, keys, 3 * name.as_str().len() + 192, 6);
        call.command.arg(name.as_str());
        call.write_key(self.layout.token(name));
        call.command.arg(note);
        self.write_owner(&mut call.command, claim);
        call.command.arg(claim.lease_millis()).arg(claim.tokens).arg(&*self.token_idle).arg(least).arg(claim.note.as_deref());
        call
    }

    fn to_count(&self, claim: &Claim, channel: String, verb: String) -> Result<ScriptCall> {
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
        let keys = [name.as_str().to_owned(), keys::latch_mark(name, claim.owner)];
        let (owner, life, remember) = (claim.owner.to_string(), self.life(claim.lease), millis(REMEMBER));
        Ok(ScriptCall::new(&FAMILY.latch, &keys, &[what.to_owned(), owner, count.to_string(), life, remember, channel, verb]))
    }

    pub(super) fn to_release(&self, claim: &Claim) -> ScriptCall {
        let name = &claim.resource;
        if claim.mode == Mode::Exclusive {
            return self.to_release_lock(claim);
        }
        let (main, owner, verb) = (name.as_str().to_owned(), claim.owner.to_string(), self.publish().to_owned());
        match claim.mode {
            Mode::Read | Mode::Write | Mode::Downgrade => {
                let keys = [main, keys::writers(name), keys::notes(name), keys::share(name, claim.owner)];
                let only_read = if claim.mode == Mode::Read { "1" } else { "0" };
                let args = [owner, keys::shares(name), self.layout.channel_of(claim), verb, only_read.to_owned()];
                ScriptCall::new(&FAMILY.rw_release, &keys, &args)
            }
            Mode::Permits { .. } => {
                let keys = [main, keys::held_permits(name, self.counters), keys::notes(name)];
                ScriptCall::new(&FAMILY.permits_release, &keys, &self.permits_to_release(claim))
            }
            _ => {
                let [queue, deadlines, ours] = keys::queue(name);
                let mut keys = vec![main, self.layout.token(name).to_string(), queue, deadlines, ours];
                keys.extend(claim.note.as_ref().map(|_| keys::note(name)));
                let args = [owner, self.token_idle.clone(), self.layout.channel(name).to_string(), verb];
                ScriptCall::new(&FAMILY.fair_release, &keys, &args)
            }
        }
    }

    /// Written in place, as the acquire is.
    fn to_release_lock(&self, claim: &Claim) -> ScriptCall {
        let name = &claim.resource;
        let note = claim.note.as_ref().map(|_| keys::note(name));
        let keys = 1 + usize::from(note.is_some());
        let mut call = ScriptCall::with_room(&self.scripts.release, keys, 3 * name.as_str().len() + 128, 3);
        call.command.arg(name.as_str()).arg(note);
        self.write_owner(&mut call.command, claim);
        call.write_key(self.layout.channel(name));
        call.command.arg(self.publish());
        call
    }

    /// The arguments of a script that gives permits back.
    pub(super) fn permits_to_release(&self, claim: &Claim) -> Vec<String> {
        let Mode::Permits { take, .. } = claim.mode else { return Vec::new() };
        let mut args = vec![claim.owner.to_string(), self.layout.channel_of(claim), self.publish().to_owned()];
        args.extend(keys::permit_ids(claim.owner, take));
        args
    }

    pub(super) fn to_renew_locks(&self, claims: &[&Claim]) -> ScriptCall {
        let (mut keys, mut args) = (Vec::with_capacity(claims.len()), Vec::with_capacity(3 * claims.len()));
        for claim in claims {
            keys.push(claim.resource.as_str().to_owned());
            keys.extend(claim.note.as_ref().map(|_| keys::note(&claim.resource)));
            let has_note = if claim.note.is_some() { "1" } else { "0" };
            args.extend([claim.owner.to_string(), claim.lease_millis().to_string(), has_note.to_owned()]);
        }
        ScriptCall::new(&self.scripts.renew, &keys, &args)
    }

    /// For readers and writers. `alone`: a writer whose slot moves, over its own key.
    pub(super) fn to_renew_shares(claims: &[&Claim], alone: bool) -> ScriptCall {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for claim in claims {
            let name = &claim.resource;
            let main = || name.as_str().to_owned();
            // A writer has no share, and a key that is missing is refused while its slot moves.
            let share = if claim.mode == Mode::Write { main() } else { keys::share(name, claim.owner) };
            keys.extend([main(), if alone { main() } else { keys::notes(name) }, share]);
            args.extend([claim.owner.to_string(), claim.lease_millis().to_string()]);
        }
        ScriptCall::new(&FAMILY.rw_renew, &keys, &args)
    }

    /// `alone`: over the list of the permits, while its slot moves.
    pub(super) fn to_renew_permits(&self, claims: &[&Claim], alone: bool) -> ScriptCall {
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for claim in claims {
            let name = &claim.resource;
            let Mode::Permits { take, .. } = claim.mode else { continue };
            let held = keys::held_permits(name, self.counters);
            keys.extend(if alone {
                [held.clone(), held.clone(), held]
            } else {
                [name.as_str().to_owned(), held, keys::notes(name)]
            });
            args.extend([claim.lease_millis().to_string(), self.life(claim.lease), take.to_string()]);
            args.extend(keys::permit_ids(claim.owner, take));
        }
        ScriptCall::new(&FAMILY.permits_renew, &keys, &args)
    }
}
