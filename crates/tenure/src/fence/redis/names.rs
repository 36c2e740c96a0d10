//! Where the fence of a key is: beside it, in the same slot of a cluster, and under a name that nothing else has.

use crate::backends::redis::slots::tag;
use crate::error::{Error, Result};

/// What the keys of fences and marks begin with, and no key of a lock does.
const FENCE: &str = "tenure_fence";
const MARK: &str = "tenure_mark";

/// The key that holds the largest token of another key.
///
/// A key with a hash tag keeps it, any other becomes the tag; prefixes of their own keep `a` and `{a}` apart.
pub(super) fn fence_of(key: &str) -> Result<String> {
    let refuse = |problem, allowed| Err(Error::config(format!("the key {key:?}"), problem, allowed));
    if key.starts_with(FENCE) || key.starts_with(MARK) {
        return refuse("is a fence itself", "keys that do not begin with tenure_fence or tenure_mark");
    }
    if tag(key).is_some() {
        return Ok(format!("{FENCE}_tag:{key}"));
    }
    if key.is_empty() || key.contains('}') {
        return refuse("leaves no name for a fence in the same slot", "keys without }, or with a {tag} in them");
    }
    Ok(format!("{FENCE}:{{{key}}}"))
}

/// The key of a mark. No other key belongs to it, so any name is allowed.
pub(super) fn mark_of(resource: &str) -> String {
    format!("{MARK}:{resource}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::backends::redis::slots::slot_of;

    #[test]
    fn names_are_as_they_are_documented() {
        for (key, fence) in [
            ("a", "tenure_fence:{a}"),
            ("{a}", "tenure_fence_tag:{a}"),
            ("x{a}y", "tenure_fence_tag:x{a}y"),
            ("{a}b}", "tenure_fence_tag:{a}b}"),
            ("a{b", "tenure_fence:{a{b}"),
        ] {
            assert_eq!(fence_of(key).expect(key), fence);
        }
        assert_eq!(mark_of("/a}b"), "tenure_mark:/a}b");
    }

    #[test]
    fn a_key_without_a_name_for_its_fence_is_refused_with_what_is_allowed() {
        for bad in ["a}b", "}", "{}x", "{}{a}", "}{", ""] {
            let error = fence_of(bad).expect_err(bad).to_string();
            assert!(error.contains("{tag}") && error.contains("slot"), "{error}");
        }
        for bad in ["tenure_fence:{a}", "tenure_fence_tag:{a}"] {
            let error = fence_of(bad).expect_err(bad).to_string();
            assert!(error.contains("do not begin with"), "{error}");
        }
    }

    /// All that can be made of few letters: braces meet in all ways.
    fn all_short_keys() -> Vec<String> {
        let longer = |keys: &Vec<String>| keys.iter().flat_map(|key| "a:{}".chars().map(move |c| format!("{key}{c}"))).collect();
        let lengths = std::iter::successors(Some(vec![String::new()]), |keys| Some(longer(keys)));
        lengths.take(8).flatten().collect()
    }

    #[test]
    fn no_two_keys_share_a_fence() {
        let mut keys = std::collections::HashMap::new();
        for key in all_short_keys() {
            let Ok(fence) = fence_of(&key) else { continue };
            let other = keys.insert(fence, key.clone());
            assert_eq!(other, None, "shares its fence with {key:?}");
        }
    }

    proptest! {
        #[test]
        fn a_fence_is_in_the_slot_of_its_key_and_is_no_key_itself(
            key in prop_oneof!["[ab{}:]{0,8}", "tenure_(fence|fence_tag|mark):[ab{}]{0,5}", "\\PC{0,20}"],
        ) {
            if let Ok(fence) = fence_of(&key) {
                prop_assert_eq!(slot_of(&fence), slot_of(&key));
                prop_assert!(fence_of(&fence).is_err() && fence_of(&mark_of(&key)).is_err());
            }
        }
    }
}
