//! Slots on their way. A script with several keys is refused then, unless all of them are at one server; with one key it is always
//! heard. So holds are extended and given back key by key, in an order in which each step leaves nothing that is wrong.

use redis::{Cmd, Value, cmd};

use super::Redis;
use super::keys;
use super::question::{Answer, Question};
use super::reply::unexpected;
use super::scripts::FAMILY;
use super::wire::{Call, Renews};
use crate::backend::{Claim, Mode, Renewal};
use crate::error::{Fault, Result};

const GIVING_BACK: &str = "releasing";

impl Redis {
    /// Extends one hold of a slot on its way: at once if its keys are at one server, and if nobody has tried that yet.
    pub(super) async fn extend_on_the_way(&self, slot: u16, claim: &Claim, tried: bool) -> Result<Renewal> {
        if !tried {
            match self.extend_one(slot, claim).await {
                Err(e) if e.fault() == Some(Fault::Moving) => {}
                answer => return answer,
            }
        }
        let mut call = match Renews::of(claim.mode) {
            // A note may wait for the next time.
            Renews::Locks => return self.extend_one(slot, &Claim { note: None, ..claim.clone() }).await,
            Renews::Shares => Self::to_renew_shares(&[claim]),
            Renews::Permits => self.to_renew_permits(&[claim]),
        };
        match claim.mode {
            Mode::Permits { .. } => call.keys = vec![keys::held_permits(&claim.resource, self.counters); 3],
            Mode::Write => call.keys = vec![claim.resource.as_str().to_owned(); 3],
            _ => {
                // First the share: one that has lapsed is not made again, and nobody takes a reader for dead whose share lives.
                let mut expire = cmd("PEXPIRE");
                expire.arg(keys::share(&claim.resource, claim.owner)).arg(claim.lease_millis());
                let answer = self.router.ask("renewing", slot, Question::Command(&expire)).await?;
                if let Some(sync) = self.sync {
                    answer.synced("renewing", sync).await?;
                }
                if answer.value != Value::Int(1) {
                    return Ok(Renewal::Gone);
                }
                let args = vec![claim.owner.to_string(), claim.lease_millis().to_string()];
                call = Call { source: &FAMILY.rw_renew_alone, keys: vec![claim.resource.as_str().to_owned()], args };
            }
        }
        let answer = self.call("renewing", slot, &call).await?;
        let answers = self.extensions(answer, &[claim]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(unexpected("renewing")))
    }

    /// Gives a hold back: the lock itself, with the answer of the script that does it all at once. What stands beside it goes too if
    /// it can be reached, and otherwise with its own time to live; it keeps nobody out for longer.
    pub(super) async fn send_release_on_the_way(&self, slot: u16, claim: &Claim) -> Result<Value> {
        match claim.mode {
            Mode::Read | Mode::Write | Mode::Downgrade => self.give_share_back(slot, claim).await,
            Mode::Permits { .. } => {
                let mut call = self.to_release(claim);
                call.source = &FAMILY.permits_release_alone;
                call.keys = vec![keys::held_permits(&claim.resource, self.counters)];
                Ok(self.call(GIVING_BACK, slot, &call).await?.value)
            }
            _ => self.give_lock_back(slot, claim).await,
        }
    }

    async fn give_lock_back(&self, slot: u16, claim: &Claim) -> Result<Value> {
        let name = &claim.resource;
        let (owner, channel, verb) = (claim.owner.to_string(), self.layout.channel(name).to_string(), self.publish());
        let args = [&*owner, &*channel, verb];
        let gave = self.eval(GIVING_BACK, slot, &self.scripts.release, &[name.as_str()], &args).await?.value;
        if claim.mode == Mode::Fair {
            let [line, ..] = keys::line(name);
            let args = [&*owner, &*channel, verb, if gave == Value::Int(0) { "0" } else { "1" }];
            drop(self.eval(GIVING_BACK, slot, &FAMILY.fair_leave, &[&*line], &args).await);
        }
        Ok(gave)
    }

    async fn give_share_back(&self, slot: u16, claim: &Claim) -> Result<Value> {
        let (name, owner) = (&claim.resource, claim.owner.to_string());
        let one = |verb: &str, key: String| {
            let mut command = cmd(verb);
            command.arg(key);
            command
        };
        let waited = match claim.mode {
            Mode::Write => {
                let left = self.eval(GIVING_BACK, slot, &FAMILY.rw_leave, &[&*keys::writers(name)], &[&*owner]).await;
                left.ok().map(|left| left.value)
            }
            _ => None,
        };
        let (channel, waited) = (self.layout.channel_of(claim), if waited == Some(Value::Int(1)) { "1" } else { "0" });
        let args = [&*owner, &*channel, self.publish(), waited];
        let gave = self.eval(GIVING_BACK, slot, &FAMILY.rw_release_alone, &[name.as_str()], &args).await?.value;
        let (mut note, mut share) = (one("HDEL", keys::notes(name)), one("DEL", keys::share(name, claim.owner)));
        let (_, share) = tokio::join!(self.do_alone(slot, note.arg(&owner)), self.do_alone(slot, &mut share));
        // A reader whose share had lapsed did not hold it any more.
        let lapsed = claim.mode != Mode::Write && share == Some(Value::Int(0));
        Ok(if lapsed { Value::Int(0) } else { gave })
    }

    /// One command for one key; nothing if that is not answered.
    async fn do_alone(&self, slot: u16, command: &mut Cmd) -> Option<Value> {
        let answer: Result<Answer> = self.router.ask(GIVING_BACK, slot, Question::Command(command)).await;
        Some(answer.ok()?.value)
    }
}
