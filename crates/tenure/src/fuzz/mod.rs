//! Fuzz targets for input from outside: a function per reader, which says what must hold for any input.
//!
//! `scripts/fuzz` builds them with libFuzzer (`--cfg fuzzing`); `cargo test` replays the corpus in `fuzz/corpus`. No
//! other build contains them.

#[cfg(feature = "http")]
mod http;
mod names;
#[cfg(all(feature = "once", feature = "redis"))]
mod redis_fences;
mod sql;
mod url;

/// A fuzz target.
pub type Target = fn(&[u8]);

/// All of them, by the names of their corpora.
pub const TARGETS: &[(&str, Target)] = &[
    ("url", url::read),
    ("duration", names::durations),
    ("name", names::names),
    ("sql", sql::texts),
    #[cfg(feature = "http")]
    ("http_door", http::door),
    #[cfg(feature = "http")]
    ("http_answer", http::answer),
    #[cfg(feature = "sqlite")]
    ("pipe", crate::backends::sqlite::fuzz::messages),
    #[cfg(feature = "redis")]
    ("redis_reply", crate::backends::redis::fuzz::replies),
    #[cfg(feature = "redis")]
    ("redis_frames", crate::backends::redis::fuzz::frames),
    #[cfg(feature = "redis")]
    ("redis_sentinel", crate::backends::redis::fuzz::sentinels),
    #[cfg(feature = "redis")]
    ("redis_slots", crate::backends::redis::fuzz::slots),
    #[cfg(feature = "redis")]
    ("redis_key", crate::backends::redis::fuzz::keys),
    #[cfg(all(feature = "once", feature = "redis"))]
    ("redis_fence", redis_fences::fences),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_the_fuzzer_has_kept_still_holds() {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for (name, target) in TARGETS {
            let files: Vec<_> = std::fs::read_dir(corpus.join(name)).expect(name).map(|file| file.expect(name).path()).collect();
            assert!(!files.is_empty(), "{name} has no corpus");
            for file in files {
                let data = std::fs::read(&file).expect("a file of the corpus");
                let fed = std::panic::catch_unwind(|| target(&data));
                assert!(fed.is_ok(), "{} does not hold", file.display());
            }
        }
    }
}
