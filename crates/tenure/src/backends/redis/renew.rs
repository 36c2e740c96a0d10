//! Extending many holds. Each has an answer of its own: what is refused to one costs no other anything.

use std::collections::BTreeMap;

use futures_util::future::join_all;
use redis::Value;
use tracing::debug;

use super::Redis;
use super::fault::refused;
use super::keys;
use super::question::Answer;
use super::reply::{array, text, unexpected};
use super::watched;
use super::wire::Renews;
use crate::backend::{Claim, Mode, Renewal};
use crate::error::{Fault, Result};

impl Redis {
    /// Fails only if nothing is known of any of them.
    pub(super) async fn extend(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let mut groups = BTreeMap::<(u16, Renews), Vec<(usize, &Claim)>>::new();
        let mut answers: Vec<Result<Renewal>> = Vec::with_capacity(claims.len());
        for (place, claim) in claims.iter().enumerate() {
            let slot = self.router.slot(&claim.resource);
            if let Ok(slot) = slot {
                groups.entry((slot, Renews::of(claim.mode))).or_default().push((place, claim));
            }
            answers.push(slot.and(Err(unexpected("renewing"))));
        }
        let longest = claims.iter().map(|c| c.lease).max().unwrap_or_default();
        let ask = join_all(groups.into_iter().map(async |((slot, kind), claims)| {
            let (places, claims): (Vec<usize>, Vec<&Claim>) = claims.into_iter().unzip();
            let group = self.extend_group(slot, kind, &claims).await.into_iter().zip(claims);
            (places, join_all(group.map(|(answer, claim)| self.or_as_reader(slot, claim, answer))).await)
        }));
        for (places, group) in self.recorded(longest, ask).await {
            places.into_iter().zip(group).for_each(|(place, answer)| answers[place] = answer);
        }
        if answers.iter().all(Result::is_err) {
            return answers.into_iter().collect();
        }
        let renewal = |(answer, claim): (Result<Renewal>, &Claim)| {
            answer.unwrap_or_else(|error| {
                debug!(name = ?claim.resource, %error, "not renewed, unlike others");
                Renewal::Unknown(error.fault().unwrap_or(Fault::Protocol))
            })
        };
        Ok(answers.into_iter().zip(claims).map(renewal).collect())
    }

    /// Those of one slot and kind: one question, which may fail as a whole.
    async fn extend_group(&self, slot: u16, kind: Renews, claims: &[&Claim]) -> Vec<Result<Renewal>> {
        let error = match self.extend_at_once(slot, kind, claims).await {
            Ok(answers) => return answers,
            Err(e) => e,
        };
        if error.fault() == Some(Fault::Moving) {
            // While a slot moves, its keys are at two servers; each by itself is found.
            let lone = claims.len() == 1;
            return join_all(claims.iter().map(|claim| self.extend_on_the_way(slot, claim, lone))).await;
        }
        if !error.is_transient() && claims.len() > 1 {
            // A right that is missing for one key is refused to the whole question.
            return join_all(claims.iter().map(|claim| self.extend_one(slot, claim))).await;
        }
        claims.iter().map(|_| Err(error.clone())).collect()
    }

    /// A writer may read by now: the answer to its downgrade may be under way, or lost.
    async fn or_as_reader(&self, slot: u16, claim: &Claim, answer: Result<Renewal>) -> Result<Renewal> {
        if !matches!(answer, Ok(Renewal::Gone)) || claim.mode != Mode::Write {
            return answer;
        }
        self.extend_on_the_way(slot, &Claim { mode: Mode::Downgrade, ..claim.clone() }, false).await
    }

    async fn extend_at_once(&self, slot: u16, kind: Renews, claims: &[&Claim]) -> Result<Vec<Result<Renewal>>> {
        // What is heard of them until they are watched anew may be of this renewal.
        claims.iter().for_each(|claim| self.router.shared.watched.leave(claim));
        let answer = match kind {
            Renews::Locks => self.extend_locks(slot, claims).await?,
            Renews::Shares => self.call("renewing", slot, &Self::to_renew_shares(claims)).await?,
            Renews::Permits => self.call("renewing", slot, &self.to_renew_permits(claims)).await?,
        };
        let link = watched::Renewed::of(&answer);
        let extensions = self.extensions(answer, claims).await?;
        let there = claims.iter().zip(&extensions).filter(|(_, answer)| matches!(answer, Ok(Renewal::Extended { .. })));
        link.watch(there.map(|(claim, _)| *claim));
        Ok(extensions)
    }

    /// What a script says of some claims, once enough replicas have it.
    pub(super) async fn extensions(&self, answer: Answer, claims: &[&Claim]) -> Result<Vec<Result<Renewal>>> {
        if let Some(sync) = self.sync {
            answer.synced("renewing", sync).await?;
        }
        let answers = array(answer.value, "renewing")?;
        if answers.len() != claims.len() {
            return Err(unexpected("renewing"));
        }
        Ok(answers.iter().zip(claims).map(|(answer, claim)| extended(answer, claim)).collect())
    }

    async fn extend_locks(&self, slot: u16, claims: &[&Claim]) -> Result<Answer> {
        let notes: Vec<String> = claims.iter().map(|c| keys::note(&c.resource)).collect();
        let owners: Vec<[String; 2]> = claims.iter().map(|c| [c.owner.to_string(), c.lease_millis().to_string()]).collect();
        let mut keys = Vec::with_capacity(claims.len());
        let mut args = Vec::with_capacity(3 * claims.len());
        for ((claim, note), [owner, lease]) in claims.iter().zip(&notes).zip(&owners) {
            keys.push(claim.resource.as_str());
            args.extend([&**owner, &**lease, if claim.note.is_some() { "1" } else { "0" }]);
            if claim.note.is_some() {
                keys.push(note);
            }
        }
        self.eval("renewing", slot, &self.scripts.renew, &keys, &args).await
    }

    pub(super) async fn extend_one(&self, slot: u16, claim: &Claim) -> Result<Renewal> {
        let answers = self.extend_at_once(slot, Renews::of(claim.mode), &[claim]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(unexpected("renewing")))
    }
}

/// What a script says of one claim: a number, or why it was refused.
fn extended(answer: &Value, claim: &Claim) -> Result<Renewal> {
    match answer {
        Value::Int(1) => Ok(Renewal::Extended { valid_for: claim.lease }),
        Value::Int(0) => Ok(Renewal::Gone),
        other => Err(text(other).map_or_else(|| unexpected("renewing"), |why| refused("renewing", why))),
    }
}
