//! The names of keys and channels. All keys of a lock share one slot, by Redisson's rule for hash tags.

use std::fmt;

use crate::backend::{Claim, Mode};
use crate::name::{ClientId, OwnerId, Resource};

/// How a lock is written into Redis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layout {
    /// Redisson's RLock and the token of its RFencedLock.
    Redisson,
    /// `SET key owner NX PX lease`, as redis-py, redsync and node-redlock do.
    Plain,
}

impl Layout {
    /// Where the last token is kept.
    pub(crate) fn token(self, name: &Resource) -> Prefixed<'_> {
        Prefixed { prefix: self.token_prefix(), name: name.as_str() }
    }

    /// What stands before the name in [`token`](Self::token).
    pub(crate) fn token_prefix(self) -> &'static str {
        match self {
            Self::Redisson => TOKENS[0],
            Self::Plain => TOKENS[1],
        }
    }

    /// Where the release of an exclusive lock is told.
    pub(crate) fn channel(self, name: &Resource) -> Prefixed<'_> {
        self.lock_channel(name.as_str())
    }

    pub(crate) fn lock_channel(self, name: &str) -> Prefixed<'_> {
        let prefix = match self {
            Self::Redisson => "redisson_lock__channel",
            Self::Plain => "tenure_lock__channel",
        };
        Prefixed { prefix, name }
    }

    /// Where the waiters of a claim are told that asking again may help.
    pub(crate) fn channel_of(self, claim: &Claim) -> String {
        let name = claim.resource.as_str();
        match claim.mode {
            Mode::Fair => format!("{}:{}", self.lock_channel(name), claim.owner),
            Mode::Read | Mode::Write | Mode::Downgrade => rw_channel(name),
            Mode::Permits { .. } | Mode::Resize { .. } => permits_channel(name),
            Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => latch_channel(name),
            Mode::Exclusive => self.lock_channel(name).to_string(),
        }
    }

    /// Where a client is told of all its owners that wait in the line of a fair lock, each by its number.
    pub(crate) fn line_channel(self, claim: &Claim) -> String {
        format!("{}:{}", self.lock_channel(claim.resource.as_str()), claim.owner.client)
    }

    /// All channels with waiters for a change of this key.
    pub(crate) fn channels_of_key(self, key: &str) -> Vec<String> {
        // One without a brace is the name of a lock.
        let name = unprefixed(WRITERS, key).filter(|_| key.contains('{')).unwrap_or(key);
        let mut channels = vec![self.lock_channel(name).to_string()];
        if self == Self::Redisson {
            channels.extend([rw_channel(name), permits_channel(name), latch_channel(name)]);
        }
        channels
    }
}

pub(super) const TOKENS: [&str; 2] = ["redisson_lock_token", "tenure_lock_token"];
pub(super) const QUEUE: [&str; 3] = ["redisson_lock_queue", "redisson_lock_timeout", "tenure_lock_line"];
pub(super) const NOTE: &str = "tenure_lock_note";
pub(super) const LATCH: &str = "tenure_latch";
/// Writers in the queue.
pub(super) const WRITERS: &str = "tenure_rwlock_writers";

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

/// Whether a key or a channel ends in an owner, as the channel of a position in a fair queue does. A name may do so too.
pub(crate) fn is_owned(channel: &str) -> bool {
    let number = channel.rfind(':').and_then(|at| channel[..at].rfind(':'));
    number.is_some_and(|at| channel[at + 1..].parse::<OwnerId>().is_ok())
}

/// Whether a channel ends in a client, as the one does on which it hears of its places in a fair queue. A name may do so too.
pub(crate) fn is_of_client(channel: &str) -> bool {
    channel.rsplit_once(':').is_some_and(|(_, client)| client.parse::<ClientId>().is_ok())
}

/// The queue of a fair lock: its owners in order, their deadlines, and those of ours.
pub(crate) fn queue(name: &Resource) -> [String; 3] {
    QUEUE.map(|prefix| prefixed(prefix, name.as_str()))
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
    format!("{}{owner}:{SHARE}:1", shares(name))
}

pub(super) const SHARE: &str = "rwlock_timeout";

/// The notes of shared holds; for permits also the list of their owners.
pub(crate) fn notes(name: &Resource) -> String {
    prefixed(NOTES, name.as_str())
}

pub(super) const NOTES: &str = "tenure_lock_notes";

/// Which permits are held: Redisson's own list, or ours beside its plain counter.
pub(crate) fn held_permits(name: &Resource, counter: bool) -> String {
    if counter { prefixed(PERMITS, name.as_str()) } else { suffixed(name, HELD) }
}

const HELD: &str = "timeout";
pub(super) const PERMITS: &str = "tenure_permits";

/// The name that a list of held permits belongs to.
pub(crate) fn name_of_permits(key: &str, counter: bool) -> Option<&str> {
    if counter {
        return unprefixed(PERMITS, key);
    }
    let name = key.strip_suffix(HELD)?.strip_suffix(':')?;
    match name.strip_prefix('{').and_then(|n| n.strip_suffix('}')) {
        Some(bare) if !bare.contains('{') => Some(bare),
        _ => Some(name).filter(|name| name.contains('{')),
    }
}

/// The ids of an owner's permits, 16 bytes each in hex: the client's own random bits, and which of its permits it is.
pub(crate) fn permit_ids(owner: OwnerId, take: u32) -> impl Iterator<Item = String> {
    (0..take).map(move |n| format!("{:032x}", owner.client.bits() ^ (u128::from(owner.number) << 16 | u128::from(n))))
}

/// That an owner has set a latch, counted it down or removed it.
pub(crate) fn latch_mark(name: &Resource, owner: OwnerId) -> String {
    format!("{}:{owner}", prefixed(LATCH, name.as_str()))
}

/// Where the holder's note is kept, if it gave one.
pub(crate) fn note(name: &Resource) -> String {
    prefixed(NOTE, name.as_str())
}

/// Where a client says who it is: under the prefix of its names, so that rights can be given by prefix.
pub(crate) fn client(prefix: &str, id: ClientId) -> String {
    format!("{CLIENT}{prefix}{id}")
}

const CLIENT: &str = "tenure_client:";

/// The prefixes under which the holder of a name may have its record, looked for by a client whose names begin with `prefix`.
pub(crate) fn prefixes_of<'a>(prefix: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let rest = name.strip_prefix(prefix).unwrap_or_default();
    let ends = rest.match_indices([':', '/']).map(move |(at, _)| &name[..=prefix.len() + at]);
    std::iter::once(prefix).chain(ends).take(MOST_PREFIXES)
}

const MOST_PREFIXES: usize = 4;

/// The longest leases that clients of a prefix have named.
pub(crate) fn leases(prefix: &str) -> String {
    if prefix.is_empty() { LEASES.to_owned() } else { format!("{LEASES}:{prefix}") }
}

pub(super) const LEASES: &str = "tenure:leases";

/// A key or channel that is named after a lock, to be written where it is needed.
///
/// Redisson's rule: a name with a brace is taken to bring its own hash tag.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prefixed<'a> {
    prefix: &'static str,
    name: &'a str,
}

impl<'a> Prefixed<'a> {
    pub(super) fn parts(&self) -> [&'a str; 5] {
        let Self { prefix, name } = *self;
        let (open, close) = if name.contains('{') { ("", "") } else { ("{", "}") };
        [prefix, ":", open, name, close]
    }
}

impl fmt::Display for Prefixed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parts().into_iter().try_for_each(|part| f.write_str(part))
    }
}

fn prefixed(prefix: &'static str, name: &str) -> String {
    Prefixed { prefix, name }.to_string()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_like_a_key_of_writers_in_the_queue_has_channels_of_its_own() {
        let channels = |key| Layout::Redisson.channels_of_key(key);
        assert!(channels("tenure_rwlock_writers:x").contains(&"redisson_lock__channel:{tenure_rwlock_writers:x}".to_owned()));
        assert!(channels("tenure_rwlock_writers:{x}").contains(&rw_channel("x")));
        assert!(channels("tenure_rwlock_writers:a{x}").contains(&rw_channel("a{x}")));
    }

    #[test]
    fn records_are_looked_for_under_what_a_name_may_begin_with() {
        let prefixes = |own, name| prefixes_of(own, name).collect::<Vec<_>>();
        assert_eq!(prefixes("", "app:stock:42"), ["", "app:", "app:stock:"]);
        assert_eq!(prefixes("app:", "app:stock:42"), ["app:", "app:stock:"]);
        assert_eq!(prefixes("", "a:b:c:d:e"), ["", "a:", "a:b:", "a:b:c:"]);
        assert_eq!(prefixes("", "x"), [""]);
    }
}
