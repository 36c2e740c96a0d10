//! The protocol between the lab and its actors: a line of JSON for each request and reply.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::crowd::Crowd;
use crate::error::LabError;

/// What an actor is told to do. Each is answered, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    /// Send one command to a server, as any client would.
    Redis { port: u16, command: Vec<String> },
    /// Get ready to use a lock: connect, so that no story waits for that.
    Prepare(LockSpec),
    /// Get a lock. Without a wait, ask once.
    Take { lock: LockSpec, wait: Option<Duration> },
    /// Give back what was taken last.
    GiveBack,
    /// Note a grant that came of [`Redis`](Self::Redis) commands, and the token that came with it if there was one.
    Granted { token: Option<u64> },
    /// Say whether what was taken last is still held, as far as one knows oneself.
    IsHeld,
    /// Say whether what was taken last is still renewed, which only the lab can ask.
    IsRenewed,
    /// Say how many wait for a lock of Tenure's.
    Waiters(TenureSpec),
    /// Send a command until it is granted, each time one call deeper, on a stack of so many bytes.
    Recurse { port: u16, command: Vec<String>, stack: usize },
    /// Subscribe to a channel.
    Subscribe { port: u16, channel: String },
    /// Wait for a message on that channel.
    Hear { limit: Duration },
    /// See how many units the shop has.
    Look,
    /// Write to the shop that there is one less than were seen, with the token of what was taken last if it has one.
    Sell,
    /// Let the shop check what is written in this way from now on, whatever the lock is.
    Check(Check),
    /// Look, and be ready to sell, in a future that runs under the guard of what was taken last.
    BeginSale,
    /// Sell in that future.
    EndSale,
    /// Be many, who all want the same lock.
    StartCrowd(Crowd),
    /// Be one again.
    StopCrowd,
}

/// How the shop is to check what an actor writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Check {
    Nothing,
    /// The token is compared when it comes with a write.
    AtTheWrite,
    /// The fence is raised before the stock is read, and compared with each write.
    BeforeTheRead,
    /// The lease that was read with the stock must still be there.
    Lease,
    /// Both.
    BeforeTheReadAndLease,
}

/// A lock that an actor knows how to take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LockSpec {
    /// A mutex inside of the actor's process.
    Local,
    /// What common libraries do: see [`SetNx`](crate::setnx_lock::SetNx).
    SetNx(SetNxSpec),
    /// The same at a majority of servers: see [`Redlock`](crate::redlock::Redlock).
    Redlock(RedlockSpec),
    Tenure(TenureSpec),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetNxSpec {
    pub(crate) port: u16,
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    /// Whether it is renewed at a third of its time.
    pub(crate) renewed: bool,
    /// How often a waiter asks again.
    pub(crate) poll: Duration,
    /// The key of a counter that is raised with each grant: its number is the token.
    pub(crate) counter: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RedlockSpec {
    pub(crate) ports: Vec<u16>,
    pub(crate) key: String,
    pub(crate) ttl: Duration,
    /// Whether it is renewed at a third of its time.
    pub(crate) renewed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TenureSpec {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) lease: Duration,
    /// Whether the lease is not renewed.
    pub(crate) fixed: bool,
    /// Whether waiters are served in order.
    pub(crate) fair: bool,
}

/// What an actor says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    /// What a server has answered.
    Value(Value),
    /// Connected; the name under which a store knows this actor, if it has one.
    Ready {
        known_as: Option<String>,
    },
    Granted {
        token: Option<u64>,
    },
    Busy,
    Is(bool),
    Units(i64),
    Waiting(u32),
    Sold {
        stale: bool,
    },
    Refused,
    /// Another write came since the read.
    Overtaken,
    /// The guard has ended the work, and this is why.
    Stopped(String),
    /// All of a crowd wait; the names under which a store knows them, if it has any, and their own.
    CrowdStarted {
        known_as: Vec<(String, String)>,
    },
    /// How long all of a crowd have waited for what they were granted.
    CrowdStopped {
        waited: Duration,
    },
    /// It could not be done.
    Failed(LabError),
    /// Not an answer: the lock was lost, and this is why.
    Lost(String),
}

/// What a Redis server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Value {
    Nil,
    Int(i64),
    Text(String),
    List(Vec<Self>),
    Error(String),
}

impl Value {
    /// `OK` and 1: how Redis says that it was done.
    pub(crate) fn is_yes(&self) -> bool {
        *self == Self::Int(1) || matches!(self, Self::Text(text) if text == "OK")
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nil => f.write_str("nil"),
            Self::Int(n) => write!(f, "{n}"),
            Self::Text(text) => f.write_str(text),
            Self::List(values) => write!(f, "[{}]", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            Self::Error(error) => write!(f, "error: {error}"),
        }
    }
}

impl From<redis::Value> for Value {
    fn from(value: redis::Value) -> Self {
        match value {
            redis::Value::Nil => Self::Nil,
            redis::Value::Int(n) => Self::Int(n),
            redis::Value::BulkString(bytes) => Self::Text(String::from_utf8_lossy(&bytes).into_owned()),
            redis::Value::SimpleString(text) => Self::Text(text),
            redis::Value::Okay => Self::Text("OK".to_owned()),
            redis::Value::Array(values) => Self::List(values.into_iter().map(Self::from).collect()),
            redis::Value::ServerError(error) => Self::Error(error.to_string()),
            other => Self::Text(format!("{other:?}")),
        }
    }
}
