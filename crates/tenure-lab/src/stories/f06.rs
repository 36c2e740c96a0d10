//! A release that first reads the owner and then deletes: in between, another client is granted the lock.

use super::late_release::{LEASE, LONG, TTL, deletes_the_lock_of_another, gives_back_only_its_own, set};
use crate::error::{LabError, Result};
use crate::locks::{LOCK, setnx, setnx_fixed, tenure, tenure_fixed};
use crate::protocol::Value;
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

pub(crate) static STORY: Story = Story {
    id: "F6",
    title: "the lock runs out between the check and the DEL",
    lesson: "To compare and to delete must be one step for the server: a script.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "GET, compare, then DEL", play: naive },
        Way { kind: Kind::Usual, how: "one script compares and deletes", play: by_script },
        Way { kind: Kind::Tenure, how: "Mutex with a fixed lease", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let mut a = testbed.actor("A")?;
    set(&mut a, &server, TTL)?;
    if a.redis(&server, &["GET", LOCK])? != Value::Text("A".to_owned()) {
        return Err(LabError::new("A's lock was over before A could look at it: this machine is too slow"));
    }
    a.did("sees its own name, and is about to send DEL");
    let verdict = "when A's DEL came, the lock that A had seen as its own was B's; C gets in, and B and C sell the same unit";
    deletes_the_lock_of_another(testbed, &server, a, verdict)
}

fn by_script(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let locks = [&setnx_fixed(&server, LEASE), &setnx(&server, LONG)];
    gives_back_only_its_own(testbed, &server, locks, "there is nothing between the check and the deletion: that is enough here")
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let locks = [&tenure_fixed(server.url(""), LEASE), &tenure(server.url(""), LONG)];
    gives_back_only_its_own(testbed, &server, locks, "one script, and an owner that is unique to each hold")
}
