//! How the lab starts processes.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::Command;

use crate::error::Result;
use crate::process::MakeCommand;

/// The programs of a lab. The program that embeds the lab supplies it.
#[derive(Debug, Clone)]
pub struct Launcher {
    /// The Redis server.
    pub redis_server: OsString,
    /// The embedding program. Started with [`ACTOR_SUBCOMMAND`](crate::ACTOR_SUBCOMMAND) as its first argument it has to call
    /// [`run_actor`](crate::run_actor) with the arguments that follow.
    pub own_program: PathBuf,
    /// Makes the command of a program that ends with the calling thread: servers and actors must not outlive the lab.
    pub tied: MakeCommand,
}

impl Launcher {
    /// The command of a program that ends with the calling thread.
    pub(crate) fn command(&self, program: &OsStr, args: &[OsString]) -> Result<Command> {
        Ok((self.tied)(program, args)?)
    }
}
