//! The scripts, put together per layout. They are sent by their hash; the text only goes over when the server lost it.

use std::sync::LazyLock;

use redis::Script;

use super::keys::Layout;

const TOKEN: &str = include_str!("scripts/token.lua");
const TELL: &str = include_str!("scripts/tell.lua");
const REDISSON: &str = include_str!("scripts/layout_redisson.lua");
const PLAIN: &str = include_str!("scripts/layout_plain.lua");

/// One script per verb.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Source,
    pub(crate) renew: Source,
    pub(crate) release: Source,
    pub(crate) inspect: Source,
    pub(crate) break_hold: Source,
}

/// A script and its hash.
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) hash: String,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hash)
    }
}

impl Source {
    fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash }
    }
}

impl Scripts {
    fn new(layout: &str) -> Self {
        Self {
            acquire: Source::new(&[TOKEN, layout, include_str!("scripts/acquire.lua")]),
            renew: Source::new(&[layout, include_str!("scripts/renew.lua")]),
            release: Source::new(&[TELL, layout, include_str!("scripts/release.lua")]),
            inspect: Source::new(&[layout, include_str!("scripts/inspect.lua")]),
            break_hold: Source::new(&[TOKEN, TELL, layout, include_str!("scripts/break.lua")]),
        }
    }

    pub(crate) fn of(layout: Layout) -> &'static Self {
        static REDISSON_SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(REDISSON));
        static PLAIN_SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts::new(PLAIN));
        match layout {
            Layout::Redisson => &REDISSON_SCRIPTS,
            Layout::Plain => &PLAIN_SCRIPTS,
        }
    }
}
