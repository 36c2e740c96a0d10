//! From a path to the file that it leads to, and the links on the way.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::fault::{io_error, shown};
use crate::error::{Error, Result};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

#[derive(Debug)]
pub(super) struct Resolved {
    /// Without links. The file may not be there yet, its directory is.
    pub(super) path: PathBuf,
    /// The links on the way, and whose they are.
    pub(super) links: Vec<(PathBuf, u32)>,
}

/// Follows the links of an absolute path, and says which: the owner of a link decides on the file.
pub(super) fn resolve(path: &Path) -> Result<Resolved> {
    let missing = || Error::config(shown(path), "is not in an existing directory", "a file in an existing directory");
    let parts = |path: &Path| path.iter().map(OsString::from).rev().collect::<Vec<_>>();
    let (mut todo, mut links) = (parts(path), Vec::new());
    let mut at = PathBuf::from("/");
    while let Some(part) = todo.pop() {
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(part);
        let meta = match std::fs::symlink_metadata(&at) {
            Ok(meta) => meta,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let is_file = todo.is_empty() && at.parent().is_some_and(Path::is_dir);
                // What a link of the file's own name leads to is not made: it may be anywhere.
                let is_linked = std::fs::symlink_metadata(path).is_ok();
                return if is_file && !is_linked { Ok(Resolved { path: at, links }) } else { Err(missing()) };
            }
            Err(e) => return Err(io_error(&at, "opening", e)),
        };
        if meta.is_symlink() {
            let target = std::fs::read_link(&at).map_err(|e| io_error(&at, "opening", e))?;
            links.push((at.clone(), meta.uid()));
            if links.len() > MOST_LINKS {
                return Err(Error::config(shown(path), "leads through too many links", "a path without a circle"));
            }
            at.pop();
            todo.extend(parts(&target));
        } else if !todo.is_empty() && !meta.is_dir() {
            return Err(missing());
        }
    }
    Ok(Resolved { path: at, links })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_path_leads_where_the_system_says_and_its_links_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        std::fs::write(base.join("a/b/file"), "").unwrap();
        symlink("a", base.join("relative")).unwrap();
        symlink(base.join("relative/b"), base.join("absolute")).unwrap();
        symlink("../a/b/../b/file", base.join("a/link")).unwrap();
        for (path, links) in
            [("a/b/file", 0), ("relative/b/file", 1), ("absolute/file", 2), ("absolute/../link", 3), ("a/./b/../b", 0)]
        {
            let found = resolve(&base.join(path)).unwrap();
            assert_eq!(found.path, base.join(path).canonicalize().unwrap(), "{path}");
            assert_eq!(found.links.len(), links, "{path}: {:?}", found.links);
        }
        assert_eq!(resolve(&base.join("absolute/new")).unwrap().path, base.join("a/b/new"));
    }

    #[test]
    fn what_leads_nowhere_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        symlink("circle", dir.path().join("circle")).unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        for path in ["dangling", "circle", "no/file", "file/in_it", "dangling/file"] {
            assert!(matches!(resolve(&dir.path().join(path)), Err(Error::Config { .. })), "{path}");
        }
    }
}
