//! A file system that is not local to this machine's kernel.

use std::path::Path;
use std::process::Command;

use tenure::{Error, Locker};

use super::common::*;

struct Mount<'a>(&'a Path);

impl Drop for Mount<'_> {
    fn drop(&mut self) {
        let _gone = Command::new("fusermount3").arg("-uz").arg(self.0).status();
    }
}

pub(crate) fn fuse_is_refused_unless_the_url_takes_any_file_system() {
    let (from, to) = (dir(), dir());
    let mounted = Command::new("bindfs").args([from.path(), to.path()]).status().expect("bindfs runs");
    assert!(mounted.success());
    let _mount = Mount(to.path());
    let path = url(&to.path().join("locks.db"));
    let error = refusal(&path);
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("(FUSE)") && error.to_string().contains("filesystem=any"), "{error}");
    assert_eq!(tree(from.path()), []);
    block_on(async {
        let any = format!("{path}?filesystem=any");
        let (a, b) = (Locker::connect(&any).await?, Locker::connect(&any).await?);
        let held = a.mutex("x").lock().await?;
        assert!(b.mutex("x").try_lock().await?.is_none());
        held.release().await
    })
    .expect("used all the same");
}
