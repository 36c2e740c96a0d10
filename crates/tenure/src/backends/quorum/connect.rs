//! Makes a quorum of its nodes: how many, which ones, and what it can promise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use super::ballots::Ballots;
use super::detached::DetachedCalls;
use super::messages::modes;
use super::node::{Common, Node, Open};
use super::roster::Roster;
use super::rules::majority;
use super::{Inner, NAME, Quorum, Settings};
use crate::backend::{Capabilities, Leases, Mode, Pushes, Reach, Safety, Standing, Survival};
use crate::error::{Error, Fault, Result};

/// How many nodes make sense. More would only be slower.
const SIZES: [usize; 3] = [3, 5, 7];

impl Quorum {
    pub(super) async fn connect(nodes: Vec<(String, Box<Open>)>, settings: Settings) -> Result<Self> {
        let n = nodes.len();
        if !SIZES.contains(&n) {
            let problem = match n {
                0 | 1 => "is no quorum: that node alone decides, and its own URL says so",
                n if n % 2 == 0 => "survives no more failures than one node less, and can come to a draw",
                _ => "is more than is of use",
            };
            return Err(Error::config(format!("a quorum of {n}"), problem, "3, 5 or 7 nodes"));
        }
        let Settings { clock, drift, timeout, node_timeout, lease, quarantine } = settings;
        let common = Arc::new(Common { roster: Roster::new(n, clock.clone(), quarantine, lease, timeout), clock, timeout });
        let nodes = nodes.into_iter().enumerate().map(|(index, (name, open))| Node::new(name, index, open, &common)).collect();
        let (ballots, detached, refresh_at) = (Ballots::new(n), DetachedCalls::here(), AtomicU64::new(0));
        let inner = Arc::new(Inner {
            nodes,
            common,
            ballots,
            detached,
            drift,
            vote_within: node_timeout,
            refresh_at,
            is_closed: AtomicBool::new(false),
        });
        let errors = inner.identify_all(timeout).await;
        inner.check(&errors)?;
        let capabilities = inner.capabilities();
        Ok(Self { inner, capabilities })
    }
}

impl Inner {
    /// Refuses nodes that should not be in the list, and too few that answer.
    fn check(&self, errors: &[Option<Error>]) -> Result<()> {
        let fix = "independent servers, each once";
        for (node, error) in self.nodes.iter().zip(errors) {
            let asked = || format!("the node {}", node.name);
            if let Standing::Refused { why } = node.state().standing {
                return Err(Error::config(asked(), why.trim_start_matches("it "), fix));
            }
            match error {
                Some(e) if e.fault() == Some(Fault::ReadOnly) => return Err(Error::config(asked(), "is a replica", fix)),
                Some(e @ (Error::Config(_) | Error::Unsupported { .. })) => return Err(e.clone()),
                _ => {}
            }
            if node.opened().is_some_and(|store| store.capabilities().fails_over) {
                return Err(Error::config(asked(), "fails over to another server, which may not have its votes", fix));
            }
        }
        if errors.iter().filter(|error| error.is_none()).count() < majority(self.nodes.len()) {
            return Err(self.too_few("connecting", errors));
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        let nodes: Vec<&Capabilities> =
            self.nodes.iter().filter_map(|node| node.opened()).map(|node| node.capabilities()).collect();
        let all = |can: fn(&Capabilities) -> bool| nodes.iter().all(|node| can(node));
        let narrow = |reach: Reach| nodes.iter().any(|node| node.reach == reach);
        let reach = [Reach::Process, Reach::Machine].into_iter().find(|reach| narrow(*reach));
        let restarts = if self.common.roster.quarantine { Survival::Lock } else { Survival::FenceOnly };
        Capabilities {
            backend: NAME,
            reach: reach.unwrap_or(Reach::Network),
            nodes: u32::try_from(self.nodes.len()).unwrap_or(u32::MAX),
            modes: modes(all(|node| node.modes.carry(Mode::Read))),
            leases: nodes.iter().fold(Leases::ANY, |leases, node| leases.and(node.leases)),
            batch: nodes.iter().map(|node| node.batch).min().unwrap_or(1),
            token_blocks: all(|node| node.token_blocks),
            queues: nodes.iter().any(|node| node.queues),
            watch_first: all(|node| node.watch_first),
            // A majority may be found again when nodes come back, or come out of quarantine.
            fails_over: true,
            pushes_losses: Pushes::Never,
            safety: Safety {
                holder_pause: Survival::FenceOnly,
                store_restart: restarts,
                power_loss: restarts,
                failover: Survival::FenceOnly,
                clock_jump: Survival::FenceOnly,
            },
        }
    }
}
