//! Locks of files: flock(2) through `spawn_blocking`, on a plain thread, and by fs4.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use fs4::fs_std::FileExt;
use rustix::fs::{FlockOperation, flock};
use tenure_bench::options::Options;

use super::only;
use crate::Fault;
use crate::crowd::{Client, Lock};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Blocking,
    Thread,
    Fs4,
}

pub(crate) struct Files {
    folder: PathBuf,
    way: Way,
}

impl Files {
    pub(crate) fn open(options: &Options) -> Result<Self, Fault> {
        only(options, &["mutex"])?;
        let folder = options.urls[0].strip_prefix("file:").ok_or("file:FOLDER is needed")?.into();
        let way = match &*options.contender {
            "flock-thread" => Way::Thread,
            "fs4" => Way::Fs4,
            _ => Way::Blocking,
        };
        Ok(Self { folder, way })
    }
}

impl Client for Files {
    type Lock = FileLock;

    /// Each with a description of its own: those who share one share the lock.
    fn lock(&self, name: &str) -> FileLock {
        let path = self.folder.join(name.replace('/', "_"));
        let file = File::options().create(true).append(true).open(path).expect("a file");
        FileLock { file: Arc::new(file), way: self.way }
    }

    fn blocks(&self) -> bool {
        self.way == Way::Thread
    }
}

#[derive(Clone)]
pub(crate) struct FileLock {
    file: Arc<File>,
    way: Way,
}

impl Lock for FileLock {
    type Held = ();

    async fn acquire(&mut self, _write: bool) -> Result<(), Fault> {
        let file = Arc::clone(&self.file);
        match self.way {
            Way::Thread => flock(&*file, FlockOperation::LockExclusive)?,
            Way::Blocking => tokio::task::spawn_blocking(move || flock(&*file, FlockOperation::LockExclusive)).await??,
            Way::Fs4 => tokio::task::spawn_blocking(move || FileExt::lock_exclusive(&*file)).await??,
        }
        Ok(())
    }

    /// To unlock never waits.
    async fn release(&mut self, (): ()) -> Result<(), Fault> {
        match self.way {
            Way::Fs4 => FileExt::unlock(&*self.file)?,
            _ => flock(&*self.file, FlockOperation::Unlock)?,
        }
        Ok(())
    }
}
