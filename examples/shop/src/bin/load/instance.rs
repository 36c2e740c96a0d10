//! Instances of the shop, as processes that can be killed and stopped.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::Anything;

pub(crate) struct Instances {
    all: Vec<Instance>,
}

struct Instance {
    child: Child,
    address: String,
    setup: Setup,
}

#[derive(Clone)]
struct Setup {
    program: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Instances {
    pub(crate) async fn start(database: &str, redis: &str, count: usize, fence: bool) -> Result<Self, Anything> {
        let program = std::env::current_exe()?.with_file_name("shop");
        // A short lease, so that a day has many of them. No pushes: told of a loss at once, the shop sells nothing twice on most days even
        // without its fence, and this day is to show what the fence does when nobody is told.
        let separator = if redis.contains('?') { '&' } else { '?' };
        let mut environment =
            vec![("DATABASE_URL", database.to_owned()), ("TENURE_URL", format!("{redis}{separator}lease=1s&wake=pubsub"))];
        if !fence {
            environment.push(("SHOP_WITHOUT_FENCE", "1".to_owned()));
        }
        let setup = Setup { program, environment };
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(setup.clone().start("127.0.0.1:0").await?);
        }
        Ok(Self { all })
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.all.iter().map(|instance| instance.address.clone()).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// As a machine that loses its power, and comes back at the same address.
    pub(crate) async fn kill_and_restart(&mut self, which: usize) -> Result<(), Anything> {
        let instance = &mut self.all[which];
        instance.child.kill().await?;
        let address = instance.address.clone();
        *instance = instance.setup.clone().start(&address).await?;
        Ok(())
    }

    /// As a machine that swaps, or a runtime that collects garbage: for longer than a lease.
    pub(crate) async fn pause(&self, which: usize, long: Duration) -> Result<(), Anything> {
        self.signal(which, Signal::STOP)?;
        tokio::time::sleep(long).await;
        self.signal(which, Signal::CONT)
    }

    fn signal(&self, which: usize, signal: Signal) -> Result<(), Anything> {
        let pid = self.all[which].child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        Ok(kill_process(pid.ok_or("the instance is gone")?, signal)?)
    }

    pub(crate) async fn end(mut self) -> Result<(), Anything> {
        for which in 0..self.all.len() {
            self.signal(which, Signal::TERM)?;
        }
        for instance in &mut self.all {
            instance.child.wait().await?;
        }
        Ok(())
    }
}

impl Setup {
    async fn start(self, listen: &str) -> Result<Instance, Anything> {
        let mut command = Command::new(&self.program);
        command.envs(self.environment.iter().cloned()).env("LISTEN", listen).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(|e| format!("{}: {e}; build it first", self.program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
        let said = lines.next_line().await?.ok_or("an instance ended at once")?;
        let address = said.strip_prefix("listening on ").ok_or_else(|| format!("an instance says {said:?}"))?.to_owned();
        Ok(Instance { child, address, setup: self })
    }
}
