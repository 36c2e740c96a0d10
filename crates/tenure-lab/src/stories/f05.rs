//! A holder whose time was over deletes the lock of the next one.

use super::late_release::{LEASE, LONG, TTL, deletes_the_lock_of_another, gives_back_only_its_own, set};
use crate::error::{LabError, Result};
use crate::locks::{setnx, setnx_fixed, tenure, tenure_fixed};
use crate::story::{Kind, Outcome, Story, Way};
use crate::testbed::Testbed;

pub(crate) static STORY: Story = Story {
    id: "F5",
    title: "a late holder deletes the next holder's lock",
    lesson: "Only the owner may delete a lock: its value must say whose it is, and be compared.",
    stock: 1,
    ways: &[
        Way { kind: Kind::Naive, how: "SET NX PX, and a plain DEL at the end", play: naive },
        Way { kind: Kind::Usual, how: "a value of its own, compared and deleted by a script", play: by_script },
        Way { kind: Kind::Tenure, how: "Mutex with a fixed lease", play: with_tenure },
    ],
};

fn naive(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let mut a = testbed.actor("A")?;
    if !set(&mut a, &server, TTL)? {
        return Err(LabError::new("A does not get a free lock"));
    }
    deletes_the_lock_of_another(testbed, &server, a, "A's DEL hits the lock of B; C gets in, and B and C sell the same unit")
}

fn by_script(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let locks = [&setnx_fixed(&server, LEASE), &setnx(&server, LONG)];
    gives_back_only_its_own(testbed, &server, locks, "the script finds the value of B and deletes nothing: that is enough here")
}

fn with_tenure(testbed: &Testbed) -> Result<Outcome> {
    let server = testbed.server()?;
    let locks = [&tenure_fixed(server.url(""), LEASE), &tenure(server.url(""), LONG)];
    gives_back_only_its_own(testbed, &server, locks, "A was told when its lease ended; its release touches nothing of B's")
}
