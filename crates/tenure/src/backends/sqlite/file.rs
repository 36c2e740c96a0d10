//! The file: where it is, and how it is opened.

use std::ffi::OsString;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::{Access, access, statfs};

use super::fault::{NAME, io_error, is_busy, shown, sqlite_error};
use super::format::{self, Format};
use crate::connect::decode;
use crate::error::{Error, Fault, Result};
use crate::retry::jitter;

/// File systems that other machines reach too, by their magic numbers.
const NETWORK: [(u32, &str); 15] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB2"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x00c3_6400, "Ceph"),
    (0x0bd0_0bd0, "Lustre"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
];

/// The file that a URL names, without its scheme.
pub(super) fn locate(rest: &str) -> Result<PathBuf> {
    let refuse = |problem: &str| {
        Error::config(format!("the URL sqlite:{rest}"), problem, "sqlite: alone, sqlite:/absolute/path or sqlite:relative/path")
    };
    if rest.is_empty() {
        return default_file(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
    }
    if rest.starts_with("//") && !rest.starts_with("///") {
        return Err(refuse("names a host"));
    }
    let path = decode(rest).ok_or_else(|| refuse("is not UTF-8"))?;
    if path.contains('\0') {
        return Err(refuse("has a NUL in its path"));
    }
    // Absolute, so that neither a later chdir nor SQLite's special name ":memory:" changes its meaning.
    std::path::absolute(&path).map_err(|e| refuse(&format!("has no absolute path: {e}")))
}

fn default_file(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    // Relative values are void by the XDG rules.
    let absolute = |dir: Option<OsString>| dir.map(PathBuf::from).filter(|dir| dir.is_absolute());
    let dir = absolute(state).or_else(|| absolute(home).map(|home| home.join(".local/state"))).ok_or_else(|| {
        let fix = "XDG_STATE_HOME or HOME set to an absolute path, or a file as in sqlite:/path/to/file";
        Error::config("the URL sqlite:", "has no state directory to put its file in", fix)
    })?;
    let dir = dir.join("tenure");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|e| io_error(&dir, "creating", &e))?;
    Ok(dir.join("locks.db"))
}

/// An open file of ours.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) conn: Connection,
    /// Without symbolic links: all clients must derive the same directory from it.
    pub(super) path: PathBuf,
    inode: (u64, u64),
}

impl Database {
    /// Opens or makes the file. Another program's lock on it is waited for, up to `patience`.
    pub(super) fn open(path: &Path, patience: Duration) -> Result<Self> {
        check_place(path)?;
        let start = Instant::now();
        loop {
            match Self::try_open(path, patience) {
                // Many first openers at once: SQLite does not wait by itself in all steps of the switch to WAL.
                Err(Refusal::Sqlite(e)) if is_busy(&e) && start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(1) + jitter(Duration::from_millis(4)));
                }
                Err(Refusal::Sqlite(e)) => return Err(why_not(path, &e)),
                Err(Refusal::Final(e)) => return Err(e),
                Ok(database) => return Ok(database),
            }
        }
    }

    fn try_open(path: &Path, patience: Duration) -> Result<Self, Refusal> {
        // No SQLITE_OPEN_URI: a path is a path.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut conn = Connection::open_with_flags(path, flags)?;
        wait_when_busy(&mut conn, patience)?;
        // In one transaction: another process may be making the tables right now.
        let found = format::check(&*conn.transaction()?, path)?;
        if conn.is_readonly("main")? {
            let detail = format!("{} cannot be written; allowed: a file that this user may write", path.display());
            return Err(Error::backend(NAME, "opening", Fault::ReadOnly, detail).into());
        }
        if found == Format::Empty {
            // Rows are small, and every page that changes is written whole.
            conn.execute_batch("PRAGMA page_size = 1024")?;
        }
        let mode: String = conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if mode != "wal" {
            let problem = format!("is on a file system without shared memory (journal mode {mode})");
            return Err(Error::config(shown(path), problem, "a file on a local disk or tmpfs").into());
        }
        // No fsync per commit: a power cut ends all holders too, and tokens follow the wall clock, so none comes back.
        conn.execute_batch("PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 2000; PRAGMA trusted_schema = OFF")?;
        // A killed process does not checkpoint either; the one that ends well should not pay two fsyncs for it.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.set_prepared_statement_cache_capacity(64);
        if found != Format::Present {
            format::prepare(&mut conn, path)?;
        }
        let meta = std::fs::metadata(path).map_err(|e| io_error(path, "opening", &e))?;
        let path = std::fs::canonicalize(path).map_err(|e| io_error(path, "opening", &e))?;
        Ok(Self { conn, path, inode: (meta.dev(), meta.ino()) })
    }

    /// Whether the path still leads to the open file: locks in a file that was removed exclude nobody.
    pub(super) fn is_in_place(&self) -> bool {
        std::fs::metadata(&self.path).is_ok_and(|meta| (meta.dev(), meta.ino()) == self.inode)
    }
}

pub(super) enum Refusal {
    Sqlite(rusqlite::Error),
    Final(Error),
}

impl From<rusqlite::Error> for Refusal {
    fn from(e: rusqlite::Error) -> Self {
        Self::Sqlite(e)
    }
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Self {
        Self::Final(e)
    }
}

/// SQLite's own handler sleeps up to 100 ms at a time; our transactions take a fraction of one.
fn wait_when_busy(conn: &mut Connection, patience: Duration) -> rusqlite::Result<()> {
    let mut since = Instant::now();
    conn.busy_handler(Some(move |times: i32| {
        if times == 0 {
            since = Instant::now();
        }
        let pause = Duration::from_micros(100) * u32::try_from(times + 1).unwrap_or(1).min(50);
        std::thread::sleep(pause / 2 + jitter(pause));
        since.elapsed() < patience
    }))
}

/// What can be said of the place before SQLite opens it. Nothing here opens the file: closing it again would end
/// the POSIX locks of other connections of this process.
fn check_place(path: &Path) -> Result<()> {
    let dir = path
        .parent()
        .filter(|dir| dir.is_dir())
        .ok_or_else(|| Error::config(shown(path), "is not in an existing directory", "a file in an existing directory"))?;
    if path.is_dir() {
        return Err(Error::config(shown(path), "is a directory", "a file"));
    }
    let place = if path.exists() { path } else { dir };
    let fs = statfs(place).map_err(|e| io_error(place, "opening", &e.into()))?;
    if let Some(name) = network_name(i128::from(fs.f_type)) {
        let problem = format!("is on a network file system ({name}), where boot ids and pipes mean nothing");
        return Err(Error::config(shown(path), problem, "a file on a local disk or tmpfs"));
    }
    access(place, Access::WRITE_OK).map_err(|e| io_error(place, "opening", &e.into()))
}

/// SQLite does not say why it cannot open a file; the system does.
pub(crate) fn why_not(path: &Path, e: &rusqlite::Error) -> Error {
    if e.sqlite_error_code() == Some(ErrorCode::CannotOpen) {
        let dir = path.parent().unwrap_or(path);
        if let Err(e) = access(dir, Access::WRITE_OK | Access::EXEC_OK) {
            return io_error(dir, "opening", &e.into());
        }
        // Only a file that does not exist yet: see above.
        if let Err(e) = std::fs::File::create_new(path)
            && e.kind() != std::io::ErrorKind::AlreadyExists
        {
            return io_error(path, "opening", &e);
        }
    }
    sqlite_error(path, "opening", e)
}

fn network_name(magic: i128) -> Option<&'static str> {
    // Sign-extended on some systems.
    let magic = u32::try_from(magic & 0xffff_ffff).ok()?;
    NETWORK.iter().find(|(known, _)| *known == magic).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_file_needs_an_absolute_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (state, home) = (dir.path().join("state"), dir.path().join("home"));
        assert_eq!(default_file(Some(state.clone().into()), None).unwrap(), state.join("tenure/locks.db"));
        assert_eq!(
            default_file(Some("relative".into()), Some(home.clone().into())).unwrap(),
            home.join(".local/state/tenure/locks.db")
        );
        let mode = std::fs::metadata(state.join("tenure")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert!(matches!(default_file(None, None), Err(Error::Config { .. })));
        assert!(matches!(default_file(Some("".into()), None), Err(Error::Config { .. })));
    }

    #[test]
    fn paths_are_decoded_and_hosts_refused() {
        assert_eq!(locate("/a%20b/c%3Fd").unwrap(), Path::new("/a b/c?d"));
        assert_eq!(locate("///a").unwrap(), Path::new("/a"));
        assert!(locate(":memory:").unwrap().is_absolute());
        for bad in ["//host/a", "/a%00b", "/%ff"] {
            assert!(matches!(locate(bad), Err(Error::Config { .. })), "{bad}");
        }
    }

    #[test]
    fn network_file_systems_are_known_by_their_magic_also_when_sign_extended() {
        assert_eq!(network_name(0x6969), Some("NFS"));
        assert_eq!(network_name(0xff53_4d42), Some("CIFS"));
        assert_eq!(network_name(i128::from(0xff53_4d42_u32.cast_signed())), Some("CIFS"));
        assert_eq!(network_name(0xef53), None);
    }

    #[test]
    fn a_full_disk_is_reported_as_such() {
        let dir = tempfile::tempdir().unwrap();
        let file = Database::open(&dir.path().join("full.db"), Duration::from_secs(1)).unwrap();
        file.conn.execute_batch("PRAGMA max_page_count = 1").unwrap();
        let sql = "INSERT INTO holds VALUES (zeroblob(100000), '', 0, 0, '', '', 0, 0, 0, NULL)";
        let e = sqlite_error(&file.path, "acquiring", &file.conn.execute(sql, []).unwrap_err());
        assert_eq!((e.fault(), e.is_transient()), (Some(Fault::Disk), true));
    }
}
