//! Giving a hold back.
//!
//! While a slot moves, its keys are at two servers: a script with several keys may be refused, one with a single key is always heard.
//! Then a hold is given back key by key, in an order that leaves nothing wrong after each step.

use redis::{Cmd, Value, cmd};
use tracing::warn;

use super::Redis;
use super::keys::{self, Layout};
use super::question::{Question, ScriptCall};
use super::reply::unexpected;
use super::scripts::FAMILY;
use crate::backend::{Claim, Mode, Released};
use crate::error::{Fault, Result};

const DOING: &str = "releasing";

impl Redis {
    /// Ends a hold and tells all but this process.
    pub(super) async fn send_release(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let slot = self.router.slot(name)?;
        self.router.shared.watched.leave(claim);
        let gave = match self.layout {
            Layout::Plain => Box::pin(self.give_by_command(DOING, slot, claim)).await?,
            Layout::Redisson => None,
        };
        let gave = match gave {
            Some(gave) => gave,
            None => self.give_by_script(slot, claim).await?,
        };
        match gave {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, "released, but this user may not publish: clients that listen are not woken");
                }
                Ok(Released::Yes { others_wait: told == 3 })
            }
            _ => Err(unexpected(DOING)),
        }
    }

    async fn give_by_script(&self, slot: u16, claim: &Claim) -> Result<Value> {
        let call = self.to_release(claim);
        match self.router.ask(slot, Question::script(DOING, &call).near(self.may_be_near())).await {
            Err(e) if e.fault() == Some(Fault::Moving) => Box::pin(self.send_release_by_key(slot, claim)).await,
            gave => Ok(gave?.value),
        }
    }

    /// Gives back the lock itself, with the answer of the script that does all at once. Keys beside it go too if they can be reached,
    /// and otherwise with their own time to live; they keep no client out for longer.
    async fn send_release_by_key(&self, slot: u16, claim: &Claim) -> Result<Value> {
        match claim.mode {
            Mode::Read | Mode::Write | Mode::Downgrade => self.send_share_release(slot, claim).await,
            Mode::Permits { .. } => {
                let held = [keys::held_permits(&claim.resource, self.counters)];
                let call = ScriptCall::new(&FAMILY.permits_release_alone, &held, &self.permits_to_release(claim));
                Ok(self.eval(DOING, slot, &call).await?.value)
            }
            _ => self.send_lock_release(slot, claim).await,
        }
    }

    async fn send_lock_release(&self, slot: u16, claim: &Claim) -> Result<Value> {
        let name = &claim.resource;
        let (owner, channel, verb) = (claim.owner.to_string(), self.layout.channel(name).to_string(), self.publish());
        let call = ScriptCall::new(&self.scripts.release, &[name.as_str()], &[&*owner, &*channel, verb]);
        let gave = self.eval(DOING, slot, &call).await?.value;
        if claim.mode == Mode::Fair {
            let [queue, ..] = keys::queue(name);
            let was_held = if gave == Value::Int(0) { "0" } else { "1" };
            let call = ScriptCall::new(&FAMILY.fair_leave, &[queue], &[&*owner, &*channel, verb, was_held]);
            drop(self.eval(DOING, slot, &call).await);
        }
        Ok(gave)
    }

    async fn send_share_release(&self, slot: u16, claim: &Claim) -> Result<Value> {
        let (name, owner) = (&claim.resource, claim.owner.to_string());
        let mut waited = "0";
        if claim.mode == Mode::Write {
            let left = self.eval(DOING, slot, &ScriptCall::new(&FAMILY.rw_leave, &[keys::writers(name)], &[&*owner])).await;
            waited = if left.is_ok_and(|left| left.value == Value::Int(1)) { "1" } else { "0" };
        }
        let args = [&*owner, &*self.layout.channel_of(claim), self.publish(), waited];
        let gave = self.eval(DOING, slot, &ScriptCall::new(&FAMILY.rw_release_alone, &[name.as_str()], &args)).await?.value;
        let (mut note, mut share) = (cmd("HDEL"), cmd("DEL"));
        note.arg(keys::notes(name)).arg(&owner);
        share.arg(keys::share(name, claim.owner));
        let (_, share) = tokio::join!(self.try_command(slot, &note), self.try_command(slot, &share));
        // A reader whose share had lapsed did not hold it any more.
        let lapsed = claim.mode != Mode::Write && share == Some(Value::Int(0));
        Ok(if lapsed { Value::Int(0) } else { gave })
    }

    /// One command for one key; nothing if there is no answer.
    async fn try_command(&self, slot: u16, command: &Cmd) -> Option<Value> {
        Some(self.router.ask(slot, Question::command(DOING, command)).await.ok()?.value)
    }
}
