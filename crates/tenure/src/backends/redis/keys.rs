//! The names of keys and channels. All keys of a lock share one slot, by Redisson's rule for hash tags.

use crate::backend::{Claim, Mode};
use crate::name::{ClientId, OwnerId, Resource};

/// How a lock is written into Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Redisson's RLock and the token of its RFencedLock.
    Redisson,
    /// `SET key owner NX PX lease`, as redis-py, redsync and node-redlock do.
    Plain,
}

impl Layout {
    /// Where the last token is kept.
    pub(crate) fn token(self, name: &Resource) -> String {
        prefixed(self.token_prefix(), name.as_str())
    }

    /// What stands before the name in [`token`](Self::token).
    pub(crate) fn token_prefix(self) -> &'static str {
        match self {
            Self::Redisson => "redisson_lock_token",
            Self::Plain => "tenure_lock_token",
        }
    }

    /// Where the release of an exclusive lock is told.
    pub(crate) fn channel(self, name: &Resource) -> String {
        self.lock_channel(name.as_str())
    }

    fn lock_channel(self, name: &str) -> String {
        prefixed(
            match self {
                Self::Redisson => "redisson_lock__channel",
                Self::Plain => "tenure_lock__channel",
            },
            name,
        )
    }

    /// Where those who make a claim are told that asking again may help.
    pub(crate) fn channel_of(self, claim: &Claim) -> String {
        let name = claim.resource.as_str();
        match claim.mode {
            Mode::Fair => format!("{}:{}", self.lock_channel(name), claim.owner),
            Mode::Read | Mode::Write | Mode::Downgrade => rw_channel(name),
            Mode::Permits { .. } | Mode::Resize { .. } => permits_channel(name),
            Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => latch_channel(name),
            Mode::Exclusive => self.lock_channel(name),
        }
    }

    /// All channels on which a change of this key concerns somebody.
    pub(crate) fn channels_of_key(self, key: &str) -> Vec<String> {
        let name = unprefixed(WRITERS, key).unwrap_or(key);
        let mut channels = vec![self.lock_channel(name)];
        if self == Self::Redisson {
            channels.extend([rw_channel(name), permits_channel(name), latch_channel(name)]);
        }
        channels
    }
}

/// Writers in line.
const WRITERS: &str = "tenure_rwlock_writers";

pub(crate) fn rw_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

pub(crate) fn permits_channel(name: &str) -> String {
    prefixed("redisson_sc", name)
}

/// The one channel of Redisson's that is always put in braces.
pub(crate) fn latch_channel(name: &str) -> String {
    format!("redisson_countdownlatch__channel__{{{name}}}")
}

/// Whether a channel is that of one place in line, which nothing but a message tells of.
pub(crate) fn is_place(channel: &str) -> bool {
    let number = channel.rfind(':').and_then(|at| channel[..at].rfind(':'));
    number.is_some_and(|at| channel[at + 1..].parse::<OwnerId>().is_ok())
}

/// Who is in the line of a fair lock: in order, with their deadlines, and those of ours.
pub(crate) fn line(name: &Resource) -> [String; 3] {
    ["redisson_lock_queue", "redisson_lock_timeout", "tenure_lock_line"].map(|prefix| prefixed(prefix, name.as_str()))
}

pub(crate) fn writers(name: &Resource) -> String {
    prefixed(WRITERS, name.as_str())
}

/// What stands before a reader in the name of its share.
pub(crate) fn shares(name: &Resource) -> String {
    suffixed(name, "")
}

/// The one share that a reader of ours has.
pub(crate) fn share(name: &Resource, owner: OwnerId) -> String {
    format!("{}{owner}:rwlock_timeout:1", shares(name))
}

/// The notes of those who share a name; for permits also the list of their owners.
pub(crate) fn notes(name: &Resource) -> String {
    prefixed(NOTES, name.as_str())
}

const NOTES: &str = "tenure_lock_notes";

/// Whether a hash that looks like a lock is one of [`notes`].
pub(crate) fn is_notes(key: &str) -> bool {
    key.strip_prefix(NOTES).is_some_and(|rest| rest.starts_with(':'))
}

/// Which permits are held: Redisson's own list, or ours beside its plain counter.
pub(crate) fn held_permits(name: &Resource, counter: bool) -> String {
    if counter { prefixed("tenure_permits", name.as_str()) } else { suffixed(name, HELD) }
}

const HELD: &str = "timeout";

/// The name that a list of held permits belongs to.
pub(crate) fn name_of_permits(key: &str, counter: bool) -> Option<&str> {
    if counter {
        return unprefixed("tenure_permits", key);
    }
    let name = key.strip_suffix(HELD)?.strip_suffix(':')?;
    match name.strip_prefix('{').and_then(|n| n.strip_suffix('}')) {
        Some(bare) if !bare.contains('{') => Some(bare),
        _ => Some(name),
    }
}

/// The ids of an owner's permits, 16 bytes each in hex: the client's own random bits, and which of its permits it is.
pub(crate) fn permit_ids(owner: OwnerId, take: u32) -> impl Iterator<Item = String> {
    (0..take).map(move |n| format!("{:032x}", owner.client.bits() ^ (u128::from(owner.number) << 16 | u128::from(n))))
}

/// That an owner has set a latch, counted it down or removed it.
pub(crate) fn latch_mark(name: &Resource, owner: OwnerId) -> String {
    format!("{}:{owner}", prefixed("tenure_latch", name.as_str()))
}

/// Where the holder's note is kept, if it gave one.
pub(crate) fn note(name: &Resource) -> String {
    prefixed("tenure_lock_note", name.as_str())
}

/// Where a client says who it is.
pub(crate) fn client(id: ClientId) -> String {
    format!("tenure_client:{id}")
}

/// The longest lease that clients have introduced themselves with.
pub(crate) const LEASES: &str = "tenure:leases";

/// Redisson's rule: a name with a brace is taken to bring its own hash tag.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// The same rule for what comes behind the name.
fn suffixed(name: &Resource, suffix: &str) -> String {
    if name.as_str().contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// Undoes [`prefixed`].
pub(crate) fn unprefixed<'a>(prefix: &str, key: &'a str) -> Option<&'a str> {
    let rest = key.strip_prefix(prefix)?.strip_prefix(':')?;
    match rest.strip_prefix('{').and_then(|r| r.strip_suffix('}')) {
        Some(bare) if !bare.contains('{') => Some(bare),
        _ => Some(rest),
    }
}

/// A pattern for SCAN that matches keys that start so, literally.
pub(crate) fn glob(start: &str) -> String {
    let mut pattern = String::with_capacity(start.len() + 1);
    for c in start.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('*');
    pattern
}
