//! Names that no lock may have: those of the keys that are kept beside locks.

use super::keys::{LATCH, LEASES, NOTE, NOTES, PERMITS, QUEUE, SHARE, TOKENS, WRITERS, is_owned, name_of_permits};
use crate::backend::Mode;
use crate::error::{Error, Result};
use crate::name::{ClientId, Resource};

/// Refuses a name that is a key kept beside locks, ours or Redisson's, in any layout: a lock of that name would overwrite it.
pub(super) fn refuse_reserved(name: &Resource) -> Result<()> {
    if !is_reserved(name.as_str()) {
        return Ok(());
    }
    let allowed = "other names; reserved are redisson_lock_token:{…} and the like, {…}:timeout, {…}:owner:rwlock_timeout:1, \
                   tenure_client:uuid, tenure:leases, tenure_fence:{…} and tenure_mark:…";
    Err(Error::config(format!("the name {:?}", name.as_str()), "is that of a key which is kept beside locks", allowed))
}

/// Refuses a name that is all tag, `{x}`, in modes that keep a queue, readers or permits beside it: by Redisson's rule for hash tags
/// `x` and `{x}` would have the same keys. An exclusive lock shares only its counter of tokens and its channel, which does no harm,
/// and a latch nothing.
pub(super) fn refuse_all_tag(name: &Resource, mode: Mode) -> Result<()> {
    let shares =
        matches!(mode, Mode::Fair | Mode::Read | Mode::Write | Mode::Downgrade | Mode::Permits { .. } | Mode::Resize { .. });
    let bare = name.as_str().strip_prefix('{').and_then(|name| name.strip_suffix('}'));
    let Some(bare) = bare.filter(|bare| shares && !bare.is_empty() && !bare.contains('{')) else { return Ok(()) };
    let problem = format!("is one that would share its keys with {bare:?}");
    let allowed = "that name, or one with more than a tag, as {x}:y, for fair locks, read/write locks and semaphores";
    Err(Error::config(format!("the name {:?}", name.as_str()), problem, allowed))
}

/// Whether some name has this key beside it. By the rule for hash tags, all of those have a brace.
fn is_reserved(key: &str) -> bool {
    let (kind, rest) = key.split_once(':').unwrap_or((key, ""));
    let braced = rest.contains('{');
    match kind {
        NOTE | NOTES | WRITERS | PERMITS => return braced,
        LATCH => return braced && is_owned(key),
        "tenure_client" => {
            return rest.len().checked_sub(36).and_then(|at| rest.get(at..)).is_some_and(|id| id.parse::<ClientId>().is_ok());
        }
        "tenure_fence" | "tenure_fence_tag" => return braced,
        "tenure_mark" => return true,
        "tenure" if key == LEASES || key.starts_with("tenure:leases:") => return true,
        _ if TOKENS.contains(&kind) || QUEUE.contains(&kind) => return braced,
        _ => {}
    }
    let is_share = |(share, n): (&str, &str)| {
        let owner = share.strip_suffix(SHARE).and_then(|share| share.strip_suffix(':'));
        n.bytes().all(|b| b.is_ascii_digit()) && owner.is_some_and(|owner| is_owned(owner) && owner.contains('{'))
    };
    name_of_permits(key, false).is_some() || key.rsplit_once(':').is_some_and(is_share)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backends::redis::keys::{Layout, client, held_permits, latch_mark, leases, note, notes, queue, share, writers};
    use crate::name::OwnerId;

    fn resource(name: &str) -> Resource {
        Resource::new(name).expect("a name")
    }

    /// All keys that are kept beside a name, and what is kept beside none.
    fn beside(name: &Resource, owner: OwnerId) -> Vec<String> {
        let mut all = vec![
            Layout::Redisson.token(name).to_string(),
            Layout::Plain.token(name).to_string(),
            writers(name),
            share(name, owner),
            notes(name),
            note(name),
            held_permits(name, true),
            held_permits(name, false),
            latch_mark(name, owner),
            client("", owner.client),
            client(name.as_str(), owner.client),
            leases(""),
            leases(name.as_str()),
        ];
        all.extend(queue(name));
        all
    }

    proptest! {
        #[test]
        fn no_name_is_a_key_that_is_kept_beside_a_lock(name in prop_oneof!["[a:{}/]{1,12}", "\\PC{1,40}"], bits: u128, n in 1..(1_u64 << 63)) {
            let owner = OwnerId { client: format!("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", bits >> 96, (bits >> 80) & 0xffff,
                (bits >> 64) & 0xffff, (bits >> 48) & 0xffff, bits & 0xffff_ffff_ffff).parse().expect("an id"), number: n };
            for key in beside(&resource(&name), owner) {
                let error = refuse_reserved(&resource(&key)).expect_err(&key).to_string();
                prop_assert!(error.contains("reserved are"), "{error}");
            }
        }

        #[test]
        fn names_without_braces_and_words_of_ours_are_free(name in "[a-z0-9:/._ -]{1,60}") {
            prop_assume!(!name.starts_with("tenure"));
            refuse_reserved(&resource(&name)).expect("free");
        }

        #[test]
        fn a_word_of_ours_in_the_middle_does_no_harm(before in "[a-z]{1,8}[:/]", word in prop::sample::select(&TOKENS[..]), name in "[a-z{}]{1,9}") {
            refuse_reserved(&resource(&format!("{before}{word}:{name}"))).expect("free");
        }
    }

    #[test]
    fn names_that_are_merely_like_a_key_of_ours_are_free() {
        for free in [
            "redisson_lock_token",
            "redisson_lock_token:x",
            "redisson_lock_tokens:{x}",
            "my:redisson_lock_token:{x}",
            "tenure",
            "tenure_x:{y}",
            "tenure:lease",
            "tenure:leases2",
            "tenure_client:bob",
            "tenure_latch:{x}",
            "order:timeout",
            "timeout",
            "order:rwlock_timeout:1",
            "{order}:timeouts",
            "{order}:7:rwlock_timeout:1",
        ] {
            refuse_reserved(&resource(free)).expect(free);
        }
    }
}
