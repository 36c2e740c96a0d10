//! [`Block`]: how many tokens a grant reserves for tasks of the process that take over from each other.

use std::time::Duration;

use tokio::time::Instant;

/// The least, and how often a hold is handed over in any case before other processes get their turn.
pub(crate) const LEAST: u32 = 64;
/// The most. Tokens follow the store's clock in microseconds: a block must not take them far ahead of it.
const MOST: u32 = 8192;

/// What was used longer ago says nothing of what will be.
const REMEMBERED: Duration = Duration::from_secs(1);

/// Grows while blocks are used up, and shrinks to twice of what was used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    size: u32,
    used_at: Option<Instant>,
}

impl Default for Block {
    fn default() -> Self {
        Self { size: LEAST, used_at: None }
    }
}

impl Block {
    pub(super) fn size(self) -> u32 {
        self.size
    }

    /// So many tokens of the last one were used, and so many were left.
    pub(super) fn used(&mut self, used: u32, left: u32) {
        let next = if left == 0 { self.size.max(used) } else { used };
        *self = Self { size: next.saturating_mul(2).clamp(LEAST, MOST), used_at: Some(Instant::now()) };
    }

    /// Whether it is to be remembered.
    pub(super) fn matters(&self) -> bool {
        self.size > LEAST && self.used_at.is_some_and(|at| at.elapsed() < REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_grows_while_it_is_used_up_and_shrinks_to_what_is_used() {
        let mut block = Block::default();
        for _ in 0..20 {
            block.used(block.size(), 0);
        }
        assert_eq!(block.size(), MOST);
        block.used(1000, MOST - 1000);
        assert_eq!(block.size(), 2000);
        block.used(1, 1999);
        assert_eq!(block.size(), LEAST);
    }
}
