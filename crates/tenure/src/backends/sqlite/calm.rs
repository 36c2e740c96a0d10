//! Whether names in a directory may have changed, told by one look at the directory: a change gives it another time.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::Stat;

use super::location::Inode;

/// As coarse as any file system's times are. A directory that has changed within it may change again, and have the same time.
const COARSE: Duration = Duration::from_secs(2);
/// How long a look at all names is good for: neither a mount upon a name nor another owner of what it leads to is a change of the
/// directory.
const GOOD: Duration = Duration::from_millis(50);

/// A directory, and when it was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    dir: Inode,
    /// When a name was, and when anything was, in nanoseconds of the wall clock.
    changed: (i128, i128),
}

impl Stamp {
    pub(super) fn of(dir: &Stat) -> Self {
        let at = |seconds, nanos| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
        let names = at(dir.st_mtime, dir.st_mtime_nsec);
        Self { dir: (dir.st_dev, dir.st_ino), changed: (names, at(dir.st_ctime, dir.st_ctime_nsec)) }
    }

    /// Whether any later change would show.
    fn is_settled(&self, now: Duration) -> bool {
        // Never for a time to come: the clock was set back.
        i128::try_from(now.saturating_sub(COARSE).as_nanos()).is_ok_and(|before| self.changed.1 < before)
    }
}

/// What directories looked like when all was in its place.
#[derive(Debug, Default)]
pub(super) struct Calm(Option<([Stamp; 2], Instant)>);

impl Calm {
    /// Whether nothing has changed since.
    pub(super) fn lasts(&self, dirs: &[Stamp; 2]) -> bool {
        self.0.is_some_and(|(were, at)| were == *dirs && at.elapsed() < GOOD)
    }

    /// All is in its place, in directories that looked like this before.
    pub(super) fn begin(&mut self, dirs: [Stamp; 2], now: SystemTime) {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.0 = dirs.iter().all(|dir| dir.is_settled(now)).then(|| (dirs, Instant::now()));
    }

    #[cfg(test)]
    pub(super) fn has_begun(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn end(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(dir: &std::path::Path) -> [Stamp; 2] {
        [Stamp::of(&rustix::fs::lstat(dir).unwrap()); 2]
    }

    /// Waits until the next change will have another time here, and returns when it will have so anywhere.
    fn later(dir: &std::path::Path) -> SystemTime {
        let tick = Duration::from_millis(50);
        let since = |now: SystemTime| i128::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
        while since(SystemTime::now() - tick) < stamps(dir)[0].changed.1 {
            std::thread::sleep(Duration::from_millis(5));
        }
        SystemTime::now() + COARSE
    }

    #[test]
    fn a_directory_that_has_just_changed_is_never_calm() {
        let (dir, mut calm) = (tempfile::tempdir().unwrap(), Calm::default());
        let dirs = stamps(dir.path());
        calm.begin(dirs, SystemTime::now());
        assert!(!calm.lasts(&dirs));
        // The clock was set back.
        calm.begin(dirs, SystemTime::now() - COARSE * 10);
        assert!(!calm.lasts(&dirs));
    }

    #[test]
    fn the_calm_ends_with_any_change_of_names_and_with_time() {
        let (dir, mut calm) = (tempfile::tempdir().unwrap(), Calm::default());
        let name = |name: &str| dir.path().join(name);
        let changes: [&dyn Fn(); 4] = [
            &|| std::fs::write(name("a"), "").unwrap(),
            &|| std::fs::rename(name("a"), name("b")).unwrap(),
            &|| std::fs::write(name("a"), "").and_then(|()| std::fs::rename(name("b"), name("a"))).unwrap(),
            &|| std::fs::remove_file(name("a")).unwrap(),
        ];
        for change in changes {
            let (now, begun) = (later(dir.path()), Instant::now());
            calm.begin(stamps(dir.path()), now);
            let lasted = calm.lasts(&stamps(dir.path()));
            assert!(lasted || begun.elapsed() >= GOOD);
            change();
            assert!(!calm.lasts(&stamps(dir.path())));
        }
        calm.begin(stamps(dir.path()), later(dir.path()));
        std::thread::sleep(GOOD);
        assert!(!calm.lasts(&stamps(dir.path())));
    }
}
