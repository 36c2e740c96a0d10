//! The plain layout by commands alone, on servers that have some which compare before they write: `DELEX` (Redis 8.4) or `DELIFEQ`
//! (Valkey 9), and `SET … IFEQ` (Redis 8.4, Valkey 8.1).
//!
//! A release goes this way wherever it can: that costs the server a fifth of what a script costs. The other verbs do only where this
//! user may call no script, because they need more round trips. What makes a grant safe there is the order of its steps: the last
//! token is read, *then* the lock is taken, and then the next token is written if that is still the last. Whoever was granted in
//! between has written one. So the next holder's token is always larger, however late a command arrives.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use futures_util::future::try_join_all;
use redis::{Cmd, Value, cmd};

use super::calls::Answer;
use super::fault::NAME;
use super::keys::{self, Layout};
use super::question::{Question, Tracking};
use super::reply::{int, text, unexpected};
use super::shared::lock;
use super::{Redis, written};
use crate::backend::Claim;
use crate::error::{Error, Fault, Result};
use crate::name::{OwnerId, Resource, Token};

/// How often a break begins again because the holder is another one by then.
const TRIES: usize = 8;

/// What is known of the server's commands, and of this user's rights.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// How many of the commands that compare and delete were found missing.
    missing: AtomicU8,
    /// Whether one was found.
    found: AtomicBool,
    no_scripts: AtomicBool,
    /// The largest token of each hold that was granted without a script: asking again is granted the same.
    tokens: Mutex<HashMap<OwnerId, Token>>,
}

/// Whether the server has not done it because there is no such command, or this user may not use it.
fn is_refused(error: &Error) -> bool {
    error.fault() == Some(Fault::Denied) || error.to_string().contains("unknown command")
}

impl Redis {
    /// Whether an error says that this user may call no script, and locks can do without.
    pub(super) fn goes_without_scripts(&self, error: &Error) -> bool {
        let denied = error.fault() == Some(Fault::Denied) && error.to_string().contains("'eval");
        if denied && self.layout == Layout::Plain {
            self.commands.no_scripts.store(true, Ordering::Relaxed);
        }
        denied && self.layout == Layout::Plain
    }

    pub(super) fn has_no_scripts(&self) -> bool {
        self.commands.no_scripts.load(Ordering::Relaxed)
    }

    async fn tell(&self, doing: &str, slot: u16, command: &Cmd) -> Result<Value> {
        Ok(self.router.ask(slot, Question::command(doing, command)).await?.value)
    }

    /// Deletes a key if it has this value, and says whether it had. `None`: the server has no command for that, or this user not the right.
    async fn delete_if(&self, doing: &str, slot: u16, key: &str, value: &str) -> Result<Option<bool>> {
        loop {
            let missing = self.commands.missing.load(Ordering::Relaxed);
            let mut delete = Cmd::new();
            match missing {
                0 => delete.arg("DELEX").arg(key).arg("IFEQ").arg(value),
                1 => delete.arg("DELIFEQ").arg(key).arg(value),
                _ => return Ok(None),
            };
            match self.tell(doing, slot, &delete).await {
                Ok(Value::Int(n)) => {
                    self.commands.found.store(true, Ordering::Relaxed);
                    return Ok(Some(n == 1));
                }
                Ok(_) => return Err(unexpected(doing)),
                // Not done, so the next one may be tried at once.
                Err(e) if is_refused(&e) => self.commands.missing.store(missing + 1, Ordering::Relaxed),
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives a lock back, with the answer that the script has. `None`: that takes a script.
    pub(super) async fn give_by_command(&self, doing: &str, slot: u16, claim: &Claim) -> Result<Option<Value>> {
        let (name, owner) = (&claim.resource, claim.owner.to_string());
        let delete = self.delete_if(doing, slot, name.as_str(), &owner);
        let mut publish = cmd(self.publish());
        publish.arg(self.layout.channel(name).to_string()).arg("0");
        let publish = async { self.tell(doing, slot, &publish).await };
        let (gave, heard) = if self.commands.found.load(Ordering::Relaxed) {
            // In one round trip. A message too many wakes somebody in vain.
            let (gave, heard) = tokio::join!(delete, publish);
            (gave?, Some(heard))
        } else {
            (delete.await?, None)
        };
        let Some(gave) = gave else { return Ok(None) };
        lock(&self.commands.tokens).remove(&claim.owner);
        if !gave {
            return Ok(Some(Value::Int(0)));
        }
        if let Some(note) = &claim.note {
            // It ends by itself if this does not reach the server.
            drop(self.delete_if(doing, slot, &keys::note(name), &format!("{owner} {note}")).await);
        }
        let heard = match heard {
            Some(heard) => heard,
            None => {
                let mut publish = cmd(self.publish());
                publish.arg(self.layout.channel(name).to_string()).arg("0");
                self.tell(doing, slot, &publish).await
            }
        };
        Ok(Some(Value::Int(match heard {
            Ok(Value::Int(n)) if n > 0 => 3,
            Err(e) if e.fault() == Some(Fault::Denied) => 2,
            _ => 1,
        })))
    }

    /// As the script that acquires.
    pub(super) async fn acquire_by_commands(&self, slot: u16, claim: &Claim, tracked: &[&str]) -> Result<Answered> {
        let doing = "acquiring";
        let (name, owner, lease) = (claim.resource.as_str(), claim.owner.to_string(), claim.lease_millis());
        if !self.commands.found.load(Ordering::Relaxed)
            && self.delete_if(doing, slot, name, &format!("{owner}?")).await?.is_none()
        {
            let detail = "this user may call no script, and the server has no DELEX or DELIFEQ, or not for this user; allowed: one \
                          with +evalsha +eval, or a server that has them";
            return Err(Error::backend(NAME, doing, Fault::Denied, detail));
        }
        let record = self.keep_record(claim.lease);
        let last = self.last_token(doing, slot, &claim.resource).await?;
        let mut set = cmd("SET");
        set.arg(name).arg(&owner).arg("NX").arg("GET").arg("PX").arg(lease);
        let answer = self.router.ask(slot, Question::command(doing, &set).tracking(tracked)).await?;
        if let Some(record) = record {
            Box::pin(written(record)).await;
        }
        let mut known = None;
        if let Some(holder) = text(&answer.value) {
            if holder != owner {
                let left = self.tell(doing, slot, cmd("PTTL").arg(name)).await?;
                // It may have come free meanwhile.
                let left = int(&left).map_or(0, |left| if left == -2 { 0 } else { left });
                return Ok((vec![Value::Int(0), Value::Int(left), answer.value.clone()], answer));
            }
            known = lock(&self.commands.tokens).get(&claim.owner).copied();
            if !self.set_if(doing, slot, (name, &owner), &owner, lease).await? {
                // It has just ended.
                return Ok((vec![Value::Int(0), Value::Int(0), Value::BulkString(owner.into_bytes())], answer));
            }
        } else if answer.value != Value::Nil {
            return Err(unexpected(doing));
        }
        let top = match known {
            Some(top) => top,
            None => match self.count_on(doing, slot, &claim.resource, &last, claim.tokens).await {
                Ok(top) => top,
                Err(e) => {
                    // Without a token there is no lock.
                    drop(self.delete_if(doing, slot, name, &owner).await);
                    return Err(e);
                }
            },
        };
        lock(&self.commands.tokens).insert(claim.owner, top);
        if let Some(note) = &claim.note {
            let mut set = cmd("SET");
            set.arg(keys::note(&claim.resource)).arg(format!("{owner} {note}")).arg("PX").arg(lease);
            self.tell(doing, slot, &set).await?;
        }
        Ok((vec![Value::Int(1), Value::BulkString(top.to_string().into_bytes())], answer))
    }

    /// Writes a value with an end if the key has another one. Whether it had.
    async fn set_if(&self, doing: &str, slot: u16, (key, has): (&str, &str), value: &str, life: u64) -> Result<bool> {
        let mut set = cmd("SET");
        set.arg(key).arg(value).arg("IFEQ").arg(has);
        if life > 0 {
            set.arg("PX").arg(life);
        }
        Ok(self.tell(doing, slot, &set).await? == Value::Okay)
    }

    /// The last token of a name, and the server's clock in microseconds.
    async fn last_token(&self, doing: &str, slot: u16, name: &Resource) -> Result<(Option<String>, u64)> {
        let (mut get, time) = (cmd("GET"), cmd("TIME"));
        get.arg(self.layout.token(name).to_string());
        let (last, time) = tokio::try_join!(self.tell(doing, slot, &get), self.tell(doing, slot, &time))?;
        let Value::Array(time) = time else { return Err(unexpected(doing)) };
        let [seconds, micros] = &*time else { return Err(unexpected(doing)) };
        let number = |value: &Value| int(value).and_then(|n| u64::try_from(n).ok()).ok_or_else(|| unexpected(doing));
        let clock = number(seconds)?.checked_mul(1_000_000).and_then(|s| s.checked_add(number(micros).ok()?));
        Ok((text(&last).map(str::to_owned), clock.ok_or_else(|| unexpected(doing))?))
    }

    /// The largest of some new tokens: larger than the last one, and not behind the server's clock. Fails if that is not the last any
    /// more: then somebody else was granted meanwhile.
    async fn count_on(
        &self,
        doing: &str,
        slot: u16,
        name: &Resource,
        (last, clock): &(Option<String>, u64),
        count: u32,
    ) -> Result<Token> {
        let foreign = |last: &String| {
            Error::backend(
                NAME,
                doing,
                Fault::ForeignFormat,
                format!("the token key holds {:?}", last.chars().take(32).collect::<String>()),
            )
        };
        let number = last.as_ref().map(|last| last.parse::<u64>().map_err(|_| foreign(last))).transpose()?.unwrap_or(0);
        let exhausted = || Error::backend(NAME, doing, Fault::TokenExhausted, "the next token would not fit 63 bits");
        let first = Token::new(number.max(clock.saturating_sub(1)));
        let top = first.plus(u64::from(count)).ok_or_else(exhausted)?;
        let (key, text, idle) = (self.layout.token(name).to_string(), top.to_string(), self.token_idle.parse().unwrap_or(0));
        let counted = match last {
            Some(last) => self.set_if(doing, slot, (&key, last), &text, idle).await?,
            None => {
                let mut set = cmd("SET");
                set.arg(&key).arg(&text).arg("NX");
                if idle > 0 {
                    set.arg("PX").arg(idle);
                }
                self.tell(doing, slot, &set).await? == Value::Okay
            }
        };
        let late = || Error::unavailable(NAME, doing, Fault::StoreBusy, "another client was granted a token meanwhile");
        counted.then_some(top).ok_or_else(late)
    }

    /// As the script that extends: 1 or 0 for each.
    pub(super) async fn extend_by_commands(&self, doing: &str, slot: u16, claims: &[&Claim]) -> Result<Answer> {
        let one = async |claim: &&Claim| {
            let (name, owner, lease) = (claim.resource.as_str(), claim.owner.to_string(), claim.lease_millis());
            let mut set = cmd("SET");
            set.arg(name).arg(&owner).arg("IFEQ").arg(&owner).arg("PX").arg(lease);
            let mut answer = self.router.ask(slot, Question::command(doing, &set)).await?;
            let extended = answer.value == Value::Okay;
            answer.value = Value::Int(i64::from(extended));
            if !extended {
                lock(&self.commands.tokens).remove(&claim.owner);
            } else if claim.note.is_some() {
                self.tell(doing, slot, cmd("PEXPIRE").arg(keys::note(&claim.resource)).arg(lease)).await?;
            }
            Ok::<_, Error>(answer)
        };
        let answers = try_join_all(claims.iter().map(one)).await?;
        let live = answers.first().map(|answer| std::sync::Arc::clone(&answer.live)).ok_or_else(|| unexpected(doing))?;
        let value = Value::Array(answers.into_iter().map(|answer| answer.value).collect());
        Ok(Answer { value, live, tracking: Tracking::No })
    }

    /// As the script that describes.
    pub(super) async fn describe_by_commands(&self, doing: &str, slot: u16, name: &Resource) -> Result<Value> {
        let (mut left, mut get, mut token, mut note) = (cmd("PTTL"), cmd("GET"), cmd("GET"), cmd("GET"));
        left.arg(name.as_str());
        get.arg(name.as_str());
        token.arg(self.layout.token(name).to_string());
        note.arg(keys::note(name));
        let ask = async |command| self.tell(doing, slot, command).await;
        let (left, holder, token, note) = tokio::try_join!(ask(&left), ask(&get), ask(&token), ask(&note))?;
        let holders = match &holder {
            Value::Nil => Vec::new(),
            _ => vec![Value::Array(vec![holder, left.clone(), Value::BulkString(b"lock".to_vec()), Value::Nil])],
        };
        let none = || Value::Array(Vec::new());
        Ok(Value::Array(vec![left, token, note, none(), Value::Nil, Value::Nil, Value::Array(holders)]))
    }

    /// As the script that breaks.
    pub(super) async fn break_by_commands(
        &self,
        doing: &str,
        slot: u16,
        name: &Resource,
        at_least: Option<Token>,
    ) -> Result<Value> {
        if at_least.is_some() {
            return Err(Error::backend(NAME, doing, Fault::Denied, "a lock of several servers takes scripts (+evalsha +eval)"));
        }
        for _ in 0..TRIES {
            let last = self.last_token(doing, slot, name).await?;
            let was = self.describe_by_commands(doing, slot, name).await?;
            let Value::Array(items) = &was else { return Err(unexpected(doing)) };
            let [left, .., Value::Array(holders)] = &**items else { return Err(unexpected(doing)) };
            let Some(Value::Array(holder)) = holders.first() else { return Ok(Value::Nil) };
            let Some(holder) = holder.first().and_then(text) else { return Err(unexpected(doing)) };
            if int(left) == Some(-1) {
                return Err(Error::backend(NAME, doing, Fault::ForeignFormat, "the key is not a lock of this layout"));
            }
            // First the fence: whoever is granted later has a larger token.
            let fence = match self.count_on(doing, slot, name, &last, 1).await {
                Err(e) if e.fault() == Some(Fault::StoreBusy) => continue,
                fence => fence?,
            };
            if self.delete_if(doing, slot, name.as_str(), holder).await? == Some(true) {
                let channel = self.layout.channel(name).to_string();
                drop(self.tell(doing, slot, cmd(self.publish()).arg(channel).arg("0")).await);
                return Ok(Value::Array(vec![Value::BulkString(fence.to_string().into_bytes()), was]));
            }
        }
        Err(Error::unavailable(NAME, doing, Fault::StoreBusy, "its holder changes all the time"))
    }
}

/// What a script would have said, and the last answer on the way there.
pub(super) type Answered = (Vec<Value>, Answer);
