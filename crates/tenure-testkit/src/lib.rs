//! Real servers, clusters, databases, networks and clocks for the tests of all crates of this workspace.
//!
//! Servers start on free loopback ports and end when they are dropped. A test names what it [`Needs`]: [`run`] skips it visibly where
//! that is missing. Redis servers are started by [`tenure_lab::redis_server`]; what is here panics instead of returning errors.
#![allow(missing_docs, reason = "not published; most names of a test kit need no second sentence")]

pub mod acl;
pub mod bare;
pub mod cable;
pub mod clock;
pub mod cluster;
pub mod command;
pub mod database;
pub mod fenced;
mod harness;
pub mod locker;
pub mod log;
pub mod mariadb;
pub mod nobody;
pub mod peer;
pub mod player;
pub mod postgres;
mod process;
pub mod quorum;
pub mod sentinel;
pub mod server;
pub mod tls;
mod wait;

pub use harness::{Needs, Test, run, run_at_once, run_then};
pub use process::{Signal, signal, stop};
pub use server::RedisServer;
pub use wait::{eventually, until, within};
