//! The scripts, put together per layout. They are sent by their hash; the text is sent only when the server lost it.

use std::sync::LazyLock;

use redis::Script;

use super::keys::Layout;

/// Whether a token is larger than another.
pub(crate) const MORE: &str = include_str!("scripts/more.lua");
const TOKEN: &str = concat!(include_str!("scripts/more.lua"), include_str!("scripts/token.lua"));
const TELL: &str = include_str!("scripts/tell.lua");
const REDISSON: &str = include_str!("scripts/layout_redisson.lua");
const PLAIN: &str = include_str!("scripts/layout_plain.lua");
const NOW: &str = include_str!("scripts/now.lua");
const LINE: &str = include_str!("scripts/line.lua");
const PASS_ON: &str = include_str!("scripts/pass_on.lua");
const NOTES: &str = include_str!("scripts/notes.lua");
const RW: &str = include_str!("scripts/rw.lua");
const PERMITS: &str = include_str!("scripts/permits.lua");
const BATCH: &str = include_str!("scripts/batch.lua");
const DESCRIBE: &str = include_str!("scripts/describe_redisson.lua");
const DESCRIBE_PLAIN: &str = include_str!("scripts/describe_plain.lua");

/// One script per verb of an exclusive lock; of all modes where a verb does not know which one it meets.
#[derive(Debug)]
pub(crate) struct Scripts {
    pub(crate) acquire: Source,
    pub(crate) renew: Source,
    pub(crate) release: Source,
    pub(crate) inspect: Source,
    pub(crate) list: Source,
    pub(crate) break_hold: Source,
}

/// A script and its hash.
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) hash: String,
    /// Whether it looks at keys that it does not name. A server that has yet to get a slot answers for those that are still elsewhere,
    /// too: that there are none.
    pub(crate) looks_further: bool,
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.hash)
    }
}

impl Source {
    pub(crate) fn new(parts: &[&str]) -> Self {
        let text = parts.concat();
        let hash = Script::new(&text).get_hash().to_owned();
        Self { text, hash, looks_further: false }
    }
}

impl Scripts {
    /// From what a layout writes, how it is taken, described, found and broken.
    fn new(layout: &str, acquire: &str, describe: &str, list: &str, break_hold: &str) -> Self {
        Self {
            acquire: Source::new(&[TOKEN, acquire]),
            renew: Source::new(&[BATCH, layout, include_str!("scripts/renew.lua")]),
            release: Source::new(&[TELL, layout, include_str!("scripts/release.lua")]),
            inspect: Source::new(&[describe, include_str!("scripts/inspect.lua")]),
            list: Source::new(&[list]),
            break_hold: Source::new(&[TOKEN, TELL, layout, describe, break_hold]),
        }
    }

    fn redisson() -> Self {
        let acquire = [REDISSON, include_str!("scripts/acquire.lua")].concat();
        let describe = [NOW, RW, PERMITS, DESCRIBE].concat();
        let break_hold = [LINE, include_str!("scripts/break_redisson.lua")].concat();
        Self::new(REDISSON, &acquire, &describe, include_str!("scripts/list_redisson.lua"), &break_hold)
    }

    fn plain() -> Self {
        let (acquire, break_hold) = (include_str!("scripts/acquire_plain.lua"), include_str!("scripts/break_plain.lua"));
        Self::new(PLAIN, acquire, DESCRIBE_PLAIN, include_str!("scripts/list_plain.lua"), break_hold)
    }

    pub(crate) fn of(layout: Layout) -> &'static Self {
        static REDISSON_SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::redisson);
        static PLAIN_SCRIPTS: LazyLock<Scripts> = LazyLock::new(Scripts::plain);
        match layout {
            Layout::Redisson => &REDISSON_SCRIPTS,
            Layout::Plain => &PLAIN_SCRIPTS,
        }
    }
}

/// The scripts of the other modes, in Redisson's layout, and what is the same in both.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) fair_acquire: Source,
    pub(crate) fair_release: Source,
    pub(crate) fair_leave: Source,
    pub(crate) rw_acquire: Source,
    pub(crate) rw_renew: Source,
    pub(crate) rw_renew_alone: Source,
    pub(crate) rw_release: Source,
    pub(crate) rw_release_alone: Source,
    pub(crate) rw_leave: Source,
    pub(crate) permits_acquire: Source,
    pub(crate) permits_renew: Source,
    pub(crate) permits_release: Source,
    pub(crate) permits_release_alone: Source,
    pub(crate) permits_resize: Source,
    pub(crate) latch: Source,
    pub(crate) identify: Source,
}

pub(crate) static FAMILY: LazyLock<Family> = LazyLock::new(|| {
    let script = |parts: &[&str], verb| Source::new(&[&parts.concat(), verb]);
    Family {
        fair_acquire: script(&[NOW, TOKEN, TELL, REDISSON, LINE, PASS_ON], include_str!("scripts/fair_acquire.lua")),
        fair_release: script(&[NOW, TOKEN, TELL, REDISSON, LINE, PASS_ON], include_str!("scripts/fair_release.lua")),
        fair_leave: script(&[TELL, LINE], include_str!("scripts/fair_leave.lua")),
        rw_acquire: script(&[NOW, TOKEN, TELL, REDISSON, NOTES, RW], include_str!("scripts/rw_acquire.lua")),
        rw_renew: script(&[BATCH], include_str!("scripts/rw_renew.lua")),
        rw_renew_alone: script(&[], include_str!("scripts/rw_renew_alone.lua")),
        rw_release: Source { looks_further: true, ..script(&[TELL, RW], include_str!("scripts/rw_release.lua")) },
        rw_release_alone: script(&[TELL, RW], include_str!("scripts/rw_release_alone.lua")),
        rw_leave: script(&[TELL, RW], include_str!("scripts/rw_leave.lua")),
        permits_acquire: script(&[NOW, TOKEN, TELL, PERMITS, NOTES], include_str!("scripts/permits_acquire.lua")),
        permits_renew: script(&[NOW, PERMITS, BATCH], include_str!("scripts/permits_renew.lua")),
        permits_release: script(&[NOW, TELL, PERMITS], include_str!("scripts/permits_release.lua")),
        permits_release_alone: script(&[NOW, TELL, PERMITS], include_str!("scripts/permits_release_alone.lua")),
        permits_resize: script(&[NOW, TELL, PERMITS], include_str!("scripts/permits_resize.lua")),
        latch: script(&[TELL], include_str!("scripts/latch.lua")),
        identify: script(&[], include_str!("scripts/identify.lua")),
    }
});
