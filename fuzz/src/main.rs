//! One program for all targets, so that there is one to link: `TARGET` says which of them is fed.
#![no_main]

use std::sync::LazyLock;

use tenure::fuzz;

static TARGET: LazyLock<fuzz::Target> = LazyLock::new(|| {
    let names: Vec<&str> = fuzz::TARGETS.iter().map(|(name, _)| *name).collect();
    let given = std::env::var("TARGET").unwrap_or_default();
    fuzz::target(&given).unwrap_or_else(|| panic!("TARGET={given:?} is unknown; allowed: {}", names.join(", ")))
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
