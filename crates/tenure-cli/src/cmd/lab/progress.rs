//! The progress of the lab: one line that is drawn over on a terminal, a line for each way elsewhere.

use std::io::{IsTerminal, Write};

use tenure::duration;
use tenure_lab::{Row, Story, Way};

use crate::output;

pub(crate) struct Progress {
    draws: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { draws: std::io::stderr().is_terminal() }
    }

    pub(crate) fn before(&self, story: &Story, way: &Way) {
        if self.draws {
            let text = format!("{} {}: {} …", story.id, way.kind.name(), way.how);
            output::draw_over(&text);
        }
    }

    pub(crate) fn after(&self, story: &Story, row: &Row) {
        if !self.draws {
            let (took, waited) = (duration::show(row.took), row.waited_shown());
            let claims = if row.held() { "" } else { ", NOT AS CLAIMED" };
            let told = format!("{} {}: sold {} of {}, waited {waited}", story.id, row.way.name(), row.sold, row.stock);
            drop(writeln!(std::io::stderr(), "{told} ({took}{claims})"));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.draws {
            output::erase_line();
        }
    }
}
