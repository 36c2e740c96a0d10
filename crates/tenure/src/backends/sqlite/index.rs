//! Which log and index SQLite has open. When they are removed while in use, the next process to open the file makes new ones, and knows
//! nothing of the others.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::location::Inode;

/// Whether this process has the file open, and still has a log or an index of it that was removed.
pub(super) fn lingers(path: &Path) -> bool {
    let removed = ["-wal", "-shm"].map(|end| with(path, &format!("{end} (deleted)")));
    let open: Vec<PathBuf> = opened().map(|(_, leads_to)| leads_to).collect();
    open.iter().any(|file| file == path) && open.iter().any(|file| removed.contains(file))
}

/// Whether it is this index that the process has open. It does so once for all of its connections.
pub(super) fn is_open(path: &Path, index: Inode) -> bool {
    let name = with(path, "-shm");
    let is_it = |meta: std::fs::Metadata| (meta.dev(), meta.ino()) == index;
    // By name first: only one that may be it is asked for more, which can take long on some file systems.
    opened().any(|(fd, leads_to)| leads_to.file_name() == name.file_name() && std::fs::metadata(fd).is_ok_and(is_it))
}

fn with(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(end);
    name.into()
}

/// The process's descriptors, and what they lead to.
fn opened() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    let fds = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    fds.filter_map(|fd| Some((fd.path(), std::fs::read_link(fd.path()).ok()?)))
}
