//! What is known of a cluster: its servers, the owners of the slots, and the suspects.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::link::Link;
use super::reply::unexpected;
use super::slots::{Address, Range, SLOTS};
use crate::error::Result;

#[derive(Debug, Default)]
pub(super) struct Map {
    pub(super) nodes: Vec<Node>,
    /// Per slot, the number of its master in `nodes`.
    owners: Vec<Option<u16>>,
    /// Servers that a call has found slow, gone or out of service.
    pub(super) suspects: HashMap<Address, Suspect>,
}

#[derive(Debug, Clone)]
pub(super) struct Node {
    pub(super) address: Address,
    pub(super) link: Arc<Link>,
}

/// A server that does not serve, or is slow.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Suspect {
    /// It did not serve, as opposed to being slow: waiters are told when it serves again.
    pub(super) lost: bool,
    /// A probe is under way.
    pub(super) asked: bool,
}

impl Map {
    /// A map by one server's word. Links are taken over, by address, from where they are known; others are made.
    pub(super) fn new(view: &[Range], known: &[&Node], make: impl Fn(&Address) -> Node) -> Result<Self> {
        let mut map = Self { owners: vec![None; usize::from(SLOTS)], ..Self::default() };
        for range in view {
            for (i, address) in range.nodes.iter().enumerate() {
                let number = map.number(address, |address| match known.iter().find(|node| node.address == *address) {
                    Some(node) => (*node).clone(),
                    None => make(address),
                })?;
                if i == 0 {
                    map.owners[usize::from(range.first)..=usize::from(range.last)].fill(Some(number));
                }
            }
        }
        Ok(map)
    }

    /// The number of a server, known or not.
    fn number(&mut self, address: &Address, make: impl FnOnce(&Address) -> Node) -> Result<u16> {
        let known = self.nodes.iter().position(|node| node.address == *address);
        let number = match known {
            Some(number) => number,
            None => {
                self.nodes.push(make(address));
                self.nodes.len() - 1
            }
        };
        u16::try_from(number).map_err(|_| unexpected("reading the cluster's slots"))
    }

    /// The server at an address, which has a slot from now on if one is given.
    pub(super) fn learn(&mut self, address: &Address, slot: Option<u16>, make: impl FnOnce(&Address) -> Node) -> Result<Node> {
        let number = self.number(address, make)?;
        if let Some(owner) = slot.and_then(|slot| self.owners.get_mut(usize::from(slot))) {
            *owner = Some(number);
        }
        Ok(self.nodes[usize::from(number)].clone())
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Node> {
        let number = (*self.owners.get(usize::from(slot))?)?;
        self.nodes.get(usize::from(number))
    }

    /// All servers that have slots.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Node> {
        let numbers: HashSet<usize> = self.owners.iter().flatten().map(|number| usize::from(*number)).collect();
        self.nodes.iter().enumerate().filter(move |(i, _)| numbers.contains(i)).map(|(_, node)| node)
    }

    /// Whether every slot has an owner, and none is a suspect.
    pub(super) fn is_whole(&self) -> bool {
        self.suspects.is_empty() && self.owners.iter().all(Option::is_some)
    }

    /// How many slots have another server there than here.
    pub(super) fn differs(&self, other: &Self) -> usize {
        let same = |slot: &u16| match (self.owner(*slot), other.owner(*slot)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one.link, &other.link),
            (None, None) => true,
            _ => false,
        };
        (0..SLOTS).filter(|slot| !same(slot)).count()
    }

    /// Suspects that have slots stay suspects; the links of the others, which were replaced, are returned.
    pub(super) fn inherit_suspects(&mut self, old: &Self) -> Vec<Arc<Link>> {
        let known = |node: &Node| Some((node.address.clone(), *old.suspects.get(&node.address)?));
        self.suspects = self.owners().filter_map(known).collect();
        let replaced = |node: &&Node| old.suspects.contains_key(&node.address) && !self.suspects.contains_key(&node.address);
        old.owners().filter(replaced).map(|node| Arc::clone(&node.link)).collect()
    }
}
