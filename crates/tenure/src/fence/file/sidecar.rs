//! The fence beside a file: a lock, and the largest token that has been here.

use std::fs::{self, File, Permissions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::part::{Part, is_at};
use super::{Error, FencedFile, There, Trouble};
use crate::fence::Pass;
use crate::name::Token;

/// Waiting for other writers, not forever.
pub(super) struct Wait<'a> {
    target: &'a FencedFile,
    since: Instant,
    pause: Duration,
}

impl<'a> Wait<'a> {
    pub(super) fn new(target: &'a FencedFile) -> Self {
        Self { target, since: Instant::now(), pause: Duration::from_millis(1) }
    }

    /// Pauses, a little longer each time, or says that it was enough.
    pub(super) fn once_more(&mut self) -> Result<(), Error> {
        let patience = self.target.patience;
        let left = patience.saturating_sub(self.since.elapsed());
        if left.is_zero() {
            return Err(Error::Store(Trouble::Busy { path: self.target.path(), patience }));
        }
        std::thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 2).min(Duration::from_millis(20));
        Ok(())
    }
}

/// Locked until it is dropped, or the process dies.
pub(super) struct Sidecar {
    file: File,
    path: PathBuf,
}

impl Sidecar {
    pub(super) fn lock(target: &FencedFile) -> Result<Self, Error> {
        let path = target.beside(".fence");
        let mut wait = Wait::new(target);
        loop {
            let file = match super::open(&path, true) {
                Ok(There::File(file)) => file,
                Ok(There::Else(kind)) => return Err(damaged(&path, format!("it is {kind}"))),
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    Self::create(target, &path)?;
                    continue;
                }
                // Another program has a lease of it, and is told now to give that back.
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    wait.once_more()?;
                    continue;
                }
                Err(e) => return Err(Trouble::io("opening", &path)(e)),
            };
            match file.try_lock() {
                // A sidecar that was removed meanwhile excludes no writer.
                Ok(()) if is_at(&file, &path) => return Ok(Self { file, path }),
                Ok(()) | Err(TryLockError::WouldBlock) => wait.once_more()?,
                Err(TryLockError::Error(e)) => return Err(Trouble::io("locking", &path)(e)),
            }
        }
    }

    /// With its content from the first moment on: an empty fence would be a damaged one.
    fn create(target: &FencedFile, path: &PathBuf) -> Result<(), Error> {
        let part = Part::create(target, None)?;
        let of_file = match target.mode()? {
            Some(mode) => mode,
            None => part.file.metadata().map_err(Trouble::io("looking at", &part.path))?.permissions(),
        };
        // A process that can open it can lock it: only those that may write the file.
        let writers = of_file.mode() & 0o022 | 0o200;
        let mode = Permissions::from_mode(writers | writers << 1);
        part.file.set_permissions(mode).map_err(Trouble::io("setting the permissions of", &part.path))?;
        let written = (&part.file).write_all(record(Token::new(0)).as_bytes()).and_then(|()| part.file.sync_all());
        written.map_err(Trouble::io("writing", &part.path))?;
        match fs::hard_link(&part.path, path) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(Trouble::io("creating", path)(e)),
            _ => target.sync_dir(),
        }
    }

    /// Compares a token, and raises the fence to it on disk.
    pub(super) fn admit(&self, target: &FencedFile, pass: &dyn Pass) -> Result<(), Error> {
        let seen = self.read()?;
        // Also the same one again: who raised it may have died before it was on disk.
        if pass.token() >= seen {
            // One write to bytes that are there already: who dies in it leaves the old or the new ones.
            let raised = self.file.write_all_at(record(pass.token()).as_bytes(), 0).and_then(|()| self.file.sync_data());
            raised.map_err(Trouble::io("raising", &self.path))?;
        }
        Ok(target.counters.check(&target.path().to_string_lossy(), pass, seen.max(pass.token()))?)
    }

    fn read(&self) -> Result<Token, Error> {
        let mut text = Vec::new();
        (&self.file).take(100).read_to_end(&mut text).map_err(Trouble::io("reading", &self.path))?;
        let token = str::from_utf8(&text).ok().and_then(|text| text.get(..19)?.parse().ok());
        if let Some(token) = token.filter(|token| record(*token).as_bytes() == text) {
            return Ok(token);
        }
        let problem = if text.is_empty() { "it is empty" } else { "it holds something else than a token" };
        Err(damaged(&self.path, problem.to_owned()))
    }
}

fn damaged(path: &Path, problem: String) -> Error {
    Error::Store(Trouble::Damaged { path: path.to_owned(), problem })
}

/// Always as long, and twice the same: a half-written one can be told.
fn record(token: Token) -> String {
    let token = token.get();
    format!("{token:019} {token:019}\n")
}
