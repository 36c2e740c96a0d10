//! The seat at the file: there is one per client. Its thread takes it for what has queued up, and a caller that finds it free takes it
//! for one short transaction, without a change of threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};

use super::crowd::{Caller, Crowd};
use super::jobs::Job;
use super::verbs::{VerbResult, Verbs};
use super::worker::Worker;
use crate::error::{Error, Result};
use crate::own_thread;

/// Shared by a client and its thread.
#[derive(Default)]
pub(super) struct Seat {
    /// `None` before the file is open, and after it is closed.
    worker: Mutex<Option<Worker>>,
    /// Jobs that were sent and are not done.
    unfinished: AtomicUsize,
}

impl Seat {
    /// Waits for a caller's transaction at most: no caller sits down while there are jobs.
    pub(super) fn take(&self) -> MutexGuard<'_, Option<Worker>> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before they are answered: then a caller finds the seat free.
    pub(super) fn finished(&self, jobs: usize) {
        self.unfinished.fetch_sub(jobs, Ordering::SeqCst);
    }

    fn take_if_free(&self) -> Option<MutexGuard<'_, Option<Worker>>> {
        let seat = match self.worker.try_lock() {
            Ok(seat) => seat,
            Err(TryLockError::Poisoned(seat)) => seat.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        // What was sent before comes first: a release must not overtake an acquire whose caller has gone.
        (self.unfinished.load(Ordering::SeqCst) == 0).then_some(seat)
    }
}

/// The way to a client's thread. That ends when the last one is dropped.
pub(super) struct Outbox {
    jobs: mpsc::Sender<Job>,
    seat: Arc<Seat>,
    /// A fork has neither the thread nor the locks on the file.
    process: u32,
    crowd: Crowd,
}

impl Outbox {
    pub(super) fn new(jobs: mpsc::Sender<Job>, seat: Arc<Seat>) -> Self {
        Self { jobs, seat, process: std::process::id(), crowd: Crowd::default() }
    }

    /// Fails if the client is closed.
    pub(super) fn send(&self, job: Job) -> Result<()> {
        self.seat.unfinished.fetch_add(1, Ordering::SeqCst);
        self.jobs.send(job).map_err(|_| Error::Closed)
    }

    /// Does a verb on this thread, if that takes but a moment. `None`: nothing was done, the client's thread is to be asked.
    pub(super) fn do_here<T>(
        &self,
        caller: Caller,
        doing: &str,
        verb: impl FnMut(&mut Verbs<'_>) -> VerbResult<T>,
    ) -> Option<Result<T>> {
        // The keeper's thread never waits for a disk: losses must be declared in time.
        if self.crowd.has(caller) || own_thread::is_here() || self.process != std::process::id() {
            return None;
        }
        let mut seat = self.seat.take_if_free()?;
        let worker = seat.as_mut()?;
        let answer = worker.perform_here(doing, verb)?;
        let is_log_long = worker.is_log_long();
        drop(seat);
        if is_log_long {
            drop(self.send(Job::WriteBack));
        }
        Some(answer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;
    use std::time::{Duration, Instant};

    use tempfile::TempDir;
    use tokio::runtime::Runtime;

    use super::super::peers::Notifiers;
    use super::super::terms::SqliteOptions;
    use super::super::watches::Watches;
    use super::*;
    use crate::backend::{Attempt, Claim, Client, Losses, Mode, OwnerIds};
    use crate::clock::{Clock, Drift};
    use crate::lifeline::Lifeline;
    use crate::name::{ClientId, Resource};
    use crate::signal::Hub;
    use crate::store::{Context, Registry};

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// A client without its thread: what callers do not do themselves is left undone.
    struct Threadless {
        outbox: Outbox,
        jobs: Receiver<Job>,
        claim: Claim,
        dir: TempDir,
        _runtime: Runtime,
    }

    impl Threadless {
        fn new() -> Self {
            let (dir, runtime) = (tempfile::tempdir().unwrap(), Runtime::new().unwrap());
            let client = Client { id: ClientId::random().unwrap(), about: "test".into() };
            let claim =
                Claim::new(Resource::new("a").unwrap(), OwnerIds::new(client.id).next(), Mode::Exclusive, Duration::from_secs(9));
            let (hub, watches, losses) = (Hub::default(), Watches::default(), Losses::default());
            let notify = Notifiers { hub, watches, losses, runtime: runtime.handle().clone() };
            let (clock, drift, prefix, registry) = (Clock::system(), Drift::DEFAULT, String::new(), Registry::NONE);
            let context = Context { client, clock, timeout: TIMEOUT, lease: Duration::from_secs(9), drift, prefix, registry };
            let options = SqliteOptions::file(dir.path().join("locks.db"));
            let (sender, jobs) = mpsc::channel();
            let seat = Arc::<Seat>::default();
            *seat.take() = Some(Worker::open(&options, context, Lifeline::default(), notify).unwrap());
            Self { outbox: Outbox::new(sender, seat), jobs, claim, dir, _runtime: runtime }
        }

        /// Whether an acquire was done on this thread.
        fn is_acquired_here(&self) -> bool {
            match self.outbox.do_here(Caller::default(), "acquiring", |verbs| verbs.acquire(&self.claim, None)) {
                Some(answer) => matches!(answer.unwrap(), Attempt::Granted { .. }),
                None => false,
            }
        }

        /// The same once a machine that is busy elsewhere lets it be brief.
        fn acquires_here(&self) -> bool {
            self.comes_to_be(Self::is_acquired_here)
        }

        fn releases_here(&self) -> bool {
            self.comes_to_be(Self::is_released_here)
        }

        fn comes_to_be(&self, done: impl Fn(&Self) -> bool) -> bool {
            let end = Instant::now() + TIMEOUT;
            while !done(self) {
                if Instant::now() > end {
                    return false;
                }
                // Not so often that the log becomes long.
                std::thread::sleep(Duration::from_millis(5));
            }
            true
        }

        fn is_released_here(&self) -> bool {
            self.outbox
                .do_here(Caller::default(), "releasing", |verbs| verbs.release(&self.claim))
                .is_some_and(|done| done.is_ok())
        }
    }

    #[test]
    fn a_caller_that_finds_the_seat_free_does_its_verb_itself() {
        let client = Threadless::new();
        assert!(client.acquires_here() && client.releases_here());
        assert!(client.jobs.try_recv().is_err());
    }

    #[test]
    fn what_was_sent_before_is_not_overtaken() {
        let client = Threadless::new();
        client.outbox.send(Job::Look).unwrap();
        assert!(!client.is_acquired_here());
        // It counts until it is done, and not only until it is taken.
        assert!(client.jobs.try_recv().is_ok() && !client.is_acquired_here());
        client.outbox.seat.finished(1);
        assert!(client.acquires_here());
    }

    #[test]
    fn a_thread_of_the_librarys_own_never_works_on_the_file() {
        let own = std::thread::spawn(|| {
            let client = Threadless::new();
            assert!(client.acquires_here());
            own_thread::mark();
            assert!(!client.is_released_here());
        });
        own.join().unwrap();
    }

    #[test]
    fn a_file_that_another_program_keeps_locked_holds_no_caller_up() {
        let client = Threadless::new();
        let other = rusqlite::Connection::open(client.dir.path().join("locks.db")).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let start = Instant::now();
        assert!(!client.is_acquired_here());
        assert!(start.elapsed() < TIMEOUT / 2);
        other.execute_batch("COMMIT").unwrap();
        assert!(client.acquires_here());
    }

    /// A name beside the file is taken away, and no caller goes on.
    fn is_left_to_the_thread(client: &Threadless, end: &str) {
        let path = client.dir.path().join(format!("locks.db{end}"));
        std::fs::rename(&path, client.dir.path().join("away")).unwrap();
        assert!(!client.is_released_here(), "{end}");
        std::fs::rename(client.dir.path().join("away"), &path).unwrap();
        assert!(client.acquires_here(), "{end}");
    }

    #[test]
    fn a_file_that_was_removed_and_pipes_that_were_are_left_to_the_thread() {
        for end in ["", "-wal", "-shm", ".clients"] {
            let client = Threadless::new();
            assert!(client.acquires_here());
            is_left_to_the_thread(&client, end);
        }
    }

    #[test]
    fn so_are_those_in_a_directory_that_was_left_alone_for_long() {
        let clients = ["", "-wal", "-shm", ".clients"].map(|end| (Threadless::new(), end));
        for (client, end) in &clients {
            let is_calm = |client: &Threadless| {
                client.is_acquired_here() && client.outbox.seat.take().as_ref().is_some_and(Worker::is_calm)
            };
            assert!(client.comes_to_be(is_calm), "{end}");
            is_left_to_the_thread(client, end);
        }
    }

    #[test]
    fn work_without_an_end_is_left_to_the_thread() {
        let client = Threadless::new();
        let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
        let start = Instant::now();
        let done = client.outbox.do_here(Caller::default(), "acquiring", |verbs| {
            // As one that removes rows in parts.
            verbs.bounds.restart();
            Ok(verbs.tx.query_row(endless, [], |row| row.get::<_, i64>(0))?)
        });
        assert!(done.is_none());
        assert!(start.elapsed() < TIMEOUT / 2);
        assert!(client.acquires_here());
    }

    #[test]
    fn a_long_log_is_written_back_by_the_thread_and_by_no_caller() {
        let (client, end) = (Threadless::new(), Instant::now() + TIMEOUT);
        while client.outbox.seat.unfinished.load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < end);
            let _done = client.is_acquired_here() && client.is_released_here();
        }
        assert!(!client.is_acquired_here());
        let size = std::fs::metadata(client.dir.path().join("locks.db-wal")).unwrap().len();
        assert!((2_000_000..3_000_000).contains(&size), "{size}");
        let (Outbox { jobs, seat, .. }, inbox) = (client.outbox, client.jobs);
        std::thread::scope(|scope| {
            let thread = Arc::clone(&seat);
            scope.spawn(move || super::super::thread::run(&thread, &inbox));
            while seat.unfinished.load(Ordering::SeqCst) > 0 {
                assert!(Instant::now() < end);
                std::thread::yield_now();
            }
            let is_long = seat.take().as_ref().is_some_and(Worker::is_log_long);
            assert!(!is_long, "it has begun anew");
            drop(jobs);
        });
    }
}
