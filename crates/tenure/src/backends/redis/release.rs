//! Giving a hold back.

use redis::{Cmd, Value};
use tracing::warn;

use super::Redis;
use super::keys;
use super::question::{Question, call_of, write_key};
use super::reply::unexpected;
use super::scripts::Source;
use crate::backend::{Claim, Mode, Released};
use crate::error::{Fault, Result};

impl Redis {
    fn to_release_lock(&self, claim: &Claim) -> (&'static Source, Cmd) {
        let (name, source) = (&claim.resource, &self.scripts.release);
        let note = claim.note.as_ref().map(|_| keys::note(name));
        let mut call = call_of(source, 1 + usize::from(note.is_some()), 3 * name.as_str().len() + 128, 3);
        call.arg(name.as_str()).arg(note);
        self.write_owner(&mut call, claim);
        write_key(&mut call, self.layout.channel(name));
        call.arg(self.publish());
        (source, call)
    }

    /// Ends a hold and tells all but this process.
    pub(super) async fn send_release(&self, claim: &Claim) -> Result<Released> {
        let name = &claim.resource;
        let slot = self.router.slot(name)?;
        self.router.shared.watched.leave(claim);
        let call = match claim.mode {
            Mode::Exclusive => self.to_release_lock(claim),
            _ => self.to_release(claim).by_hash(),
        };
        let (source, by_hash) = &call;
        let gave = match self.router.ask("releasing", slot, Question::Script { source, by_hash, heeds: &[] }).await {
            Err(e) if e.fault() == Some(Fault::Moving) => Box::pin(self.send_release_on_the_way(slot, claim)).await?,
            gave => gave?.value,
        };
        match gave {
            Value::Int(0) => Ok(Released::NotHeld),
            Value::Int(told) => {
                if told == 2 {
                    warn!(?name, "released, but this user may not publish: clients that listen are not woken");
                }
                Ok(Released::Yes { others_wait: told == 3 })
            }
            _ => Err(unexpected("releasing")),
        }
    }
}
