//! A second process that stops the program when tenure cannot.
//!
//! tenure tells it through a pipe, with every renewal, by when the program must have ended if no other message comes. If
//! tenure stands still (a debugger, SIGSTOP), the guardian asks the whole group to end and then kills it, before another
//! client can get the lock. When the pipe ends without a farewell, tenure was killed: then the kernel kills the program itself
//! (see [`exec`](super::exec)), and the guardian kills what the program has started. Where the store has a lifeline, the
//! guardian keeps it open until that is done: before that no client takes tenure for dead.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as Deaf};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use tenure::Locker;
use tenure::clock::{Clock, Instant};

use super::again;
use super::cgroup::{Cgroup, has_living};
use super::warden::Deadlines;

/// The hidden name under which tenure starts itself as the guardian.
pub(super) const MARK: &str = "__guard";

/// The guardian of one group, as tenure sees it.
pub(super) struct Guardian {
    watched: Watched,
    process: Child,
    told: Deadlines,
    /// Which lifeline it keeps.
    lifeline: Option<(u64, u64)>,
    born: Instant,
}

/// What a guardian watches, and for which process.
#[derive(Clone)]
pub(super) struct Watched {
    pub(super) group: Pid,
    pub(super) cgroup: Option<PathBuf>,
    pub(super) locker: Locker,
}

/// A guardian that dies younger is not replaced before it would have had this age: where none can live, the processor is not kept
/// busy by making them.
const YOUNG: Duration = Duration::from_millis(100);

/// How long killed processes may take to be gone.
const DYING: Duration = Duration::from_secs(1);

impl Guardian {
    /// It is born with what it must know: tenure may be stopped in the next moment.
    pub(super) fn start(watched: Watched, deadlines: Deadlines) -> std::io::Result<Self> {
        let mut command = again(MARK)?;
        let first = u128::from_be_bytes(message(Some(deadlines))).to_string();
        let Watched { group, cgroup, locker } = &watched;
        command.arg(group.as_raw_nonzero().to_string()).arg(first).args(cgroup).current_dir("/").env_clear();
        // Never written to: only kept open.
        let lifeline = locker.lifeline();
        let kept = lifeline.as_ref().and_then(identity);
        command.stdin(Stdio::piped()).stdout(lifeline.map_or_else(Stdio::null, Stdio::from)).stderr(Stdio::null());
        // Out of the way of the terminal's signals.
        let process = std::os::unix::process::CommandExt::process_group(&mut command, 0).spawn()?;
        if let Some(pipe) = &process.stdin {
            ioctl_fionbio(pipe, true)?;
        }
        Ok(Self { watched, process, told: deadlines, lifeline: kept, born: Clock::system().now() })
    }

    /// Says by when the program must end if nothing more is said. Never waits: a guardian that does not listen (any more) is
    /// replaced.
    pub(super) fn tell(&mut self, deadlines: Deadlines) -> std::io::Result<()> {
        if self.process.stdin.is_none() {
            return if self.is_young() { Ok(()) } else { self.replace(deadlines) };
        }
        if self.watched.locker.lifeline().as_ref().and_then(identity) != self.lifeline {
            return self.replace(deadlines);
        }
        // Elsewhere the clock means nothing to another process.
        if !cfg!(target_os = "linux") || self.told == deadlines {
            return Ok(());
        }
        if self.send(message(Some(deadlines))).is_err() {
            return if self.is_young() { Ok(()) } else { self.replace(deadlines) };
        }
        self.told = deadlines;
        Ok(())
    }

    /// Takes note of a child that was stopped: a guardian that stands still is of no use when tenure does too.
    pub(super) fn stopped(&mut self, child: Pid) -> std::io::Result<()> {
        if self.is(child) { self.replace(self.told) } else { Ok(()) }
    }

    /// Takes note of a child that has ended and is buried.
    pub(super) fn ended(&mut self, child: Pid) -> std::io::Result<()> {
        if !self.is(child) {
            return Ok(());
        }
        // Its number may be another's by now. And nobody reads what is written there.
        self.process.stdin = None;
        if self.is_young() { Ok(()) } else { self.replace(self.told) }
    }

    fn is_young(&self) -> bool {
        Clock::system().now().since(self.born) < YOUNG
    }

    fn is(&self, child: Pid) -> bool {
        self.process.stdin.is_some() && u32::try_from(child.as_raw_nonzero().get()) == Ok(self.process.id())
    }

    fn replace(&mut self, deadlines: Deadlines) -> std::io::Result<()> {
        // The new one first: at no moment is there none.
        let next = Self::start(self.watched.clone(), deadlines);
        self.end();
        *self = next?;
        Ok(())
    }

    /// Tells the guardian that all is well. What the program has left behind is left alone.
    pub(super) fn dismiss(mut self) {
        if self.send(message(None)).is_err() {
            self.end();
        }
    }

    fn send(&mut self, message: [u8; MESSAGE]) -> std::io::Result<()> {
        let pipe = self.process.stdin.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        // Less than a pipe takes at once: all of it, or nothing.
        let sent = pipe.write(&message);
        if sent.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe) {
            // It is dead and may be buried: its number may be another's by now.
            self.process.stdin = None;
        }
        sent.map(drop)
    }

    fn end(&mut self) {
        if self.process.stdin.is_some() {
            drop(self.process.kill());
        }
    }
}

/// Tells one lifeline from another.
fn identity(lifeline: &OwnedFd) -> Option<(u64, u64)> {
    rustix::fs::fstat(lifeline).ok().map(|stat| (stat.st_dev, stat.st_ino))
}

const MESSAGE: usize = 16;

/// Two points in time, SIGTERM's and SIGKILL's. Zero is never, and twice zero a farewell.
fn message(deadlines: Option<Deadlines>) -> [u8; MESSAGE] {
    let terminate = deadlines.and_then(|deadlines| deadlines.terminate).map_or(0, Instant::as_nanos);
    let kill = deadlines.map_or(0, |deadlines| deadlines.kill.as_nanos());
    ((u128::from(terminate) << 64) | u128::from(kill)).to_be_bytes()
}

/// What a guardian has heard.
#[derive(Debug, PartialEq, Eq)]
enum Heard {
    Deadlines(Deadlines),
    Farewell,
}

/// The last of some messages counts.
fn heard(bytes: &[u8]) -> Option<Heard> {
    let last: [u8; MESSAGE] = *bytes.as_chunks().0.last()?;
    let both = u128::from_be_bytes(last);
    let at = |nanos: u128| u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Instant::from_nanos);
    let (terminate, kill) = (at(both >> 64), at(both & u128::from(u64::MAX)));
    Some(kill.map_or(Heard::Farewell, |kill| Heard::Deadlines(Deadlines { terminate, kill })))
}

/// A command line that [`Guardian::start`] made, after [`MARK`].
pub(super) struct Request {
    group: Pid,
    first: Option<Deadlines>,
    cgroup: Option<Cgroup>,
}

impl Request {
    pub(super) fn read(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let group = words.next()?.to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let first: u128 = words.next()?.to_str()?.parse().ok()?;
        let first = heard(&first.to_be_bytes()).and_then(|heard| match heard {
            Heard::Deadlines(deadlines) => Some(deadlines),
            Heard::Farewell => None,
        });
        Some(Self { group, first, cgroup: words.next().map(|path| Cgroup::at(path.into())) })
    }

    /// The life of a guardian.
    pub(super) fn guard(self) {
        // It goes when its work is done. With the death of tenure its group has nobody above it any more: then the kernel sends SIGHUP
        // to one that was stopped, and lets it go on.
        let deaf = [Deaf::SIGHUP, Deaf::SIGINT, Deaf::SIGQUIT, Deaf::SIGTERM, Deaf::SIGUSR1, Deaf::SIGUSR2, Deaf::SIGTSTP];
        let _ = deaf.into_iter().collect::<SigSet>().thread_block();
        let program = Program::new(self.group);
        let kill = |signal| {
            let _ = kill_process_group(self.group, signal);
            program.signal_outside(signal);
            if signal == Signal::KILL {
                drop(self.cgroup.as_ref().map(Cgroup::kill));
            }
        };
        if watch(self.first, kill) == End::Alone {
            kill(Signal::KILL);
            let end = Clock::system().now().after(DYING);
            while has_living(self.group) && Clock::system().now() < end {
                std::thread::sleep(DYING / 500);
            }
            if let Some(cgroup) = self.cgroup {
                cgroup.remove_killed();
            }
        }
    }
}

/// The program itself, which may leave its group.
struct Program {
    #[cfg(target_os = "linux")]
    pid: Pid,
    /// Not its number: that may be another's when tenure has buried it.
    #[cfg(target_os = "linux")]
    process: Option<std::os::fd::OwnedFd>,
}

#[cfg(target_os = "linux")]
impl Program {
    fn new(pid: Pid) -> Self {
        use rustix::process::{PidfdFlags, pidfd_open};
        Self { pid, process: pidfd_open(pid, PidfdFlags::empty()).ok() }
    }

    /// Sends a signal to a program that is not in its group any more.
    fn signal_outside(&self, signal: Signal) {
        if let Some(process) = self.process.as_ref().filter(|_| super::child::has_left(self.pid)) {
            let _ = rustix::process::pidfd_send_signal(process, signal);
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl Program {
    fn new(_pid: Pid) -> Self {
        Self {}
    }

    fn signal_outside(&self, _signal: Signal) {}
}

/// How a guardian's work ends.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Dismissed,
    /// tenure has ended without a farewell.
    Alone,
}

#[cfg(target_os = "linux")]
fn watch(mut due: Option<Deadlines>, kill: impl Fn(Signal)) -> End {
    use rustix::event::{PollFd, PollFlags, poll};

    let stdin = std::io::stdin();
    let timer = Timer::new();
    loop {
        timer.arm(due);
        let mut ready = vec![PollFd::new(&stdin, PollFlags::IN)];
        ready.extend(timer.0.as_ref().map(|timer| PollFd::new(timer, PollFlags::IN)));
        let _ = poll(&mut ready, None);
        if !ready[0].revents().is_empty() {
            let mut bytes = [0; 64 * MESSAGE];
            match rustix::io::read(&stdin, &mut bytes) {
                Ok(0) => return End::Alone,
                Ok(n) => match heard(&bytes[..n]) {
                    Some(Heard::Farewell) => return End::Dismissed,
                    Some(Heard::Deadlines(deadlines)) => due = Some(deadlines),
                    None => {}
                },
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(_) => return End::Alone,
            }
            // There may be more to hear, which changes what is due.
            continue;
        }
        let now = Clock::system().now();
        if due.is_some_and(|due| now >= due.kill) {
            due = None;
            kill(Signal::KILL);
        } else if let Some(due) = &mut due
            && due.terminate.take_if(|at| now >= *at).is_some()
        {
            kill(Signal::TERM);
            // A stopped program cannot act on it.
            kill(Signal::CONT);
        }
    }
}

/// A timer on the lease clock, which runs on while the machine sleeps.
#[cfg(target_os = "linux")]
struct Timer(Option<std::os::fd::OwnedFd>);

#[cfg(target_os = "linux")]
impl Timer {
    fn new() -> Self {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok())
    }

    /// Goes off when something is due, and never if nothing is.
    fn arm(&self, due: Option<Deadlines>) {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let at = due.map_or(0, |due| due.terminate.unwrap_or(due.kill).min(due.kill).as_nanos());
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let second = 1_000_000_000;
        let at =
            Timespec { tv_sec: i64::try_from(at / second).unwrap_or(i64::MAX), tv_nsec: i64::try_from(at % second).unwrap_or(0) };
        if let Some(timer) = &self.0 {
            let _ = timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval: zero, it_value: at });
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn watch(_due: Option<Deadlines>, _kill: impl Fn(Signal)) -> End {
    use std::io::Read;
    let mut all = Vec::new();
    drop(std::io::stdin().read_to_end(&mut all));
    if heard(&all) == Some(Heard::Farewell) { End::Dismissed } else { End::Alone }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guardian_hears_what_was_said_last() {
        let at = Instant::from_nanos;
        for said in [
            Deadlines { terminate: Some(at(7)), kill: at(9) },
            Deadlines { terminate: None, kill: at(u64::MAX) },
            Deadlines { terminate: Some(at(u64::MAX)), kill: at(1) },
        ] {
            let before = message(Some(Deadlines { terminate: None, kill: at(3) }));
            let bytes = [before, message(Some(said))].concat();
            assert_eq!(heard(&bytes), Some(Heard::Deadlines(said)));
            assert_eq!(heard(&[&bytes[..], &message(None)].concat()), Some(Heard::Farewell));
        }
        assert_eq!(heard(&[]), None);
        assert_eq!(heard(&[1; 15]), None);
    }
}
