//! Extending many holds. Each has an answer of its own: what is refused to one costs no other anything.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::{Value, cmd};
use tracing::debug;

use super::calls::Answer;
use super::fault::refused;
use super::keys;
use super::question::{Question, ScriptCall};
use super::reply::{array, text, unexpected};
use super::scripts::FAMILY;
use super::wire::Renews;
use super::{Redis, written};
use crate::backend::{Claim, Mode, Renewal};
use crate::error::{Fault, Result};

const DOING: &str = "renewing";

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
            answers.push(slot.and(Err(unexpected(DOING))));
        }
        let longest = claims.iter().map(|c| c.lease).max().unwrap_or_default();
        let ask = join_all(groups.into_iter().map(async |((slot, kind), claims)| {
            let (places, claims): (Vec<usize>, Vec<&Claim>) = claims.into_iter().unzip();
            let group = self.extend_group(slot, kind, &claims).await.into_iter().zip(claims);
            (places, join_all(group.map(|(answer, claim)| self.or_as_reader(slot, claim, answer))).await)
        }));
        let record = self.keep_record(longest);
        let groups = ask.await;
        if let Some(record) = record {
            written(record).await;
        }
        for (places, group) in groups {
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
            return join_all(claims.iter().map(|claim| self.extend_by_key(slot, claim, lone))).await;
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
        self.extend_by_key(slot, &Claim { mode: Mode::Downgrade, ..claim.clone() }, false).await
    }

    async fn extend_at_once(&self, slot: u16, kind: Renews, claims: &[&Claim]) -> Result<Vec<Result<Renewal>>> {
        // What is heard of them until they are watched anew may be of this renewal.
        claims.iter().for_each(|claim| self.router.shared.watched.leave(claim));
        let answer = if self.has_no_scripts() {
            self.extend_by_commands(DOING, slot, claims).await?
        } else {
            let call = match kind {
                Renews::Locks => self.to_renew_locks(claims),
                Renews::Shares => Self::to_renew_shares(claims, false),
                Renews::Permits => self.to_renew_permits(claims, false),
            };
            match self.eval(DOING, slot, &call).await {
                Err(e) if self.goes_without_scripts(&e) => self.extend_by_commands(DOING, slot, claims).await?,
                answer => answer?,
            }
        };
        let live = Arc::clone(&answer.live);
        let extensions = self.extensions(answer, claims).await?;
        let there = claims.iter().zip(&extensions).filter(|(_, answer)| matches!(answer, Ok(Renewal::Extended { .. })));
        live.watch(there.map(|(claim, _)| *claim));
        Ok(extensions)
    }

    /// What a script says of some claims, once enough replicas have it.
    async fn extensions(&self, answer: Answer, claims: &[&Claim]) -> Result<Vec<Result<Renewal>>> {
        if let Some(sync) = self.sync {
            answer.live.synced(DOING, sync).await?;
        }
        let answers = array(answer.value, DOING)?;
        if answers.len() != claims.len() {
            return Err(unexpected(DOING));
        }
        Ok(answers.iter().zip(claims).map(|(answer, claim)| extended(answer, claim)).collect())
    }

    async fn extend_one(&self, slot: u16, claim: &Claim) -> Result<Renewal> {
        let answers = self.extend_at_once(slot, Renews::of(claim.mode), &[claim]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(unexpected(DOING)))
    }

    /// Extends one hold while its slot moves: at once if its keys are at one server, unless that was `tried`; else key by key.
    async fn extend_by_key(&self, slot: u16, claim: &Claim, tried: bool) -> Result<Renewal> {
        if !tried {
            match self.extend_one(slot, claim).await {
                Err(e) if e.fault() == Some(Fault::Moving) => {}
                answer => return answer,
            }
        }
        let call = match claim.mode {
            Mode::Permits { .. } => self.to_renew_permits(&[claim], true),
            Mode::Write => Self::to_renew_shares(&[claim], true),
            Mode::Read | Mode::Downgrade => {
                // First the share: one that has lapsed is not made again, and a reader counts as alive while its share lives.
                let mut expire = cmd("PEXPIRE");
                expire.arg(keys::share(&claim.resource, claim.owner)).arg(claim.lease_millis());
                let answer = self.router.ask(slot, Question::command(DOING, &expire)).await?;
                if let Some(sync) = self.sync {
                    answer.live.synced(DOING, sync).await?;
                }
                if answer.value != Value::Int(1) {
                    return Ok(Renewal::Gone);
                }
                let args = [claim.owner.to_string(), claim.lease_millis().to_string()];
                ScriptCall::new(&FAMILY.rw_renew_alone, &[claim.resource.as_str()], &args)
            }
            // A note may wait for the next time.
            _ => return self.extend_one(slot, &Claim { note: None, ..claim.clone() }).await,
        };
        let answer = self.eval(DOING, slot, &call).await?;
        let answers = self.extensions(answer, &[claim]).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(unexpected(DOING)))
    }
}

/// What a script says of one claim: a number, or why it was refused.
fn extended(answer: &Value, claim: &Claim) -> Result<Renewal> {
    match answer {
        Value::Int(1) => Ok(Renewal::Extended { valid_for: claim.lease }),
        Value::Int(0) => Ok(Renewal::Gone),
        other => Err(text(other).map_or_else(|| unexpected(DOING), |why| refused(DOING, why))),
    }
}
