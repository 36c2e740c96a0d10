//! What a store answers as a node of a quorum.

use std::time::Duration;

use async_trait::async_trait;

use super::{Attempt, Backend, Broken, Claim};
use crate::error::Result;
use crate::name::{Resource, Token};

/// A store that can be a node of a [quorum](crate::backends::quorum). Its own clock decides on no token here: the clocks of
/// several stores differ.
#[async_trait]
pub trait Voter: Backend {
    /// As [`acquire`](Backend::acquire), under a token that is `at_least` this one: exactly it, or the one after the last of the
    /// name if that is larger. The token of a hold that goes on is raised to it. With `None` it is the same question as `acquire`.
    async fn vote(&self, claim: &Claim, at_least: Option<Token>) -> Result<Attempt>;

    /// As [`break_hold`](Backend::break_hold), and raises the fence to `at_least` this token, also where it is free.
    async fn break_above(&self, resource: &Resource, at_least: Token) -> Result<Option<Broken>>;

    /// Names the longest lease of coming claims, and learns which server answers.
    async fn identify(&self, longest: Duration) -> Result<Server>;

    /// The connection that answers now: another number as soon as another server may have answered. Known without I/O.
    fn connection(&self) -> u64;
}

/// The server behind a node, as it [identifies](Voter::identify) itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The process or the file that keeps the locks: another one after a restart, which may have lost them.
    pub id: String,
    /// For how long it has kept all that it was told. `None` if it forgets nothing while its users live.
    pub up: Option<Duration>,
    /// Whether it only copies another one.
    pub replica: bool,
    /// Its wall clock in microseconds since 1970.
    pub clock_micros: u64,
    /// The leases that its clients have named recently.
    pub leases: Vec<InUse>,
    /// The [connection](Voter::connection) over which it said so.
    pub connection: u64,
}

/// A lease that clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InUse {
    /// The lease.
    pub lease: Duration,
    /// For how long clients have used it.
    pub for_long: Duration,
}
