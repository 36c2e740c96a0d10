//! The lease clock: the only time that leases are counted in. It runs on while the machine sleeps.
//!
//! Wall-clock time appears nowhere in lease arithmetic: setting the date changes no lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A point on a [`Clock`], in nanoseconds since some moment before the process started. Never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The point `nanos` after the clock's zero.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(if nanos == 0 { 1 } else { nanos })
    }

    /// Nanoseconds since the clock's zero.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Later by `d`; stays at the end of time instead of wrapping.
    #[must_use]
    pub fn after(self, d: Duration) -> Self {
        Self(self.0.saturating_add(nanos(d)))
    }

    /// Earlier by `d`; stays at the beginning instead of wrapping.
    #[must_use]
    pub fn before(self, d: Duration) -> Self {
        Self::from_nanos(self.0.saturating_sub(nanos(d)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// The validity of a hold: counted from before the request was sent, less the allowance for clocks that run
/// at different rates.
#[must_use]
pub fn deadline(sent: Instant, valid_for: Duration, drift: Drift) -> Instant {
    sent.after(valid_for.saturating_sub(drift.allowance(valid_for)))
}

/// How much a lease is shortened locally, because the store's clock and ours may run at different rates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drift {
    /// Parts per thousand of the lease.
    pub per_mille: u32,
    /// Added to it: the granularity of the store's expiry.
    pub fixed: Duration,
}

impl Drift {
    /// One percent and two milliseconds, as Redlock's authors propose.
    pub const DEFAULT: Self = Self { per_mille: 10, fixed: Duration::from_millis(2) };

    /// The allowance for one lease.
    #[must_use]
    pub fn allowance(self, lease: Duration) -> Duration {
        (lease.saturating_mul(self.per_mille) / 1000).saturating_add(self.fixed)
    }
}

/// A source of [`Instant`]s.
#[derive(Debug, Clone, Default)]
pub struct Clock(Source);

#[derive(Debug, Clone, Default)]
enum Source {
    #[default]
    System,
    Test(Arc<TestClock>),
}

#[derive(Debug)]
struct TestClock {
    start: tokio::time::Instant,
    jumped: AtomicU64,
}

impl Clock {
    /// The system's clock: `CLOCK_BOOTTIME` on Linux, which counts the time spent in suspend.
    /// Elsewhere the standard library's monotonic clock, which may not.
    #[must_use]
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// For tests: follows tokio's clock (which a test may pause), and can be [moved](Self::jump).
    #[must_use]
    pub fn for_tests() -> Self {
        Self(Source::Test(Arc::new(TestClock { start: tokio::time::Instant::now(), jumped: AtomicU64::new(0) })))
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> Instant {
        match &self.0 {
            Source::System => system_now(),
            Source::Test(t) => {
                Instant::from_nanos(1).after(t.start.elapsed()).after(Duration::from_nanos(t.jumped.load(Ordering::SeqCst)))
            }
        }
    }

    /// Moves a test clock ahead without any timer noticing, as a suspended machine does.
    /// The system's clock does not move.
    pub fn jump(&self, d: Duration) {
        if let Source::Test(t) = &self.0 {
            t.jumped.fetch_add(nanos(d), Ordering::SeqCst);
        }
    }

    /// A timer on this clock.
    pub(crate) fn timer(&self) -> Timer {
        Timer {
            clock: self.clone(),
            #[cfg(target_os = "linux")]
            fd: matches!(self.0, Source::System).then(suspend_aware).flatten(),
            #[cfg(target_os = "linux")]
            armed: None,
        }
    }
}

#[cfg(target_os = "linux")]
fn system_now() -> Instant {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let secs = u64::try_from(t.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(t.tv_nsec).unwrap_or(0);
    Instant::from_nanos(secs.saturating_mul(1_000_000_000).saturating_add(nanos))
}

#[cfg(not(target_os = "linux"))]
fn system_now() -> Instant {
    static ZERO: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    Instant::from_nanos(1).after(ZERO.elapsed())
}

/// Sleeps until points of a [`Clock`]. On Linux it wakes right after a suspend, which tokio's timers do not.
#[derive(Debug)]
pub(crate) struct Timer {
    clock: Clock,
    #[cfg(target_os = "linux")]
    fd: Option<tokio::net::unix::pipe::Receiver>,
    #[cfg(target_os = "linux")]
    armed: Option<Instant>,
}

#[cfg(target_os = "linux")]
fn suspend_aware() -> Option<tokio::net::unix::pipe::Receiver> {
    use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
    let fd = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC).ok()?;
    // Tokio's pipe end is its only safe way to wait for a descriptor of one's own.
    tokio::net::unix::pipe::Receiver::from_owned_fd_unchecked(fd).ok()
}

impl Timer {
    /// Resolves at `when` or a moment later; also earlier if it was armed for an earlier moment before. A caller that
    /// looks at the clock saves the system call of arming it again for every change.
    pub(crate) async fn until(&mut self, when: Instant) {
        let left = when.since(self.clock.now());
        #[cfg(target_os = "linux")]
        if self.until_fd(when, left).await.is_some() {
            return;
        }
        tokio::time::sleep(left).await;
    }

    #[cfg(target_os = "linux")]
    async fn until_fd(&mut self, when: Instant, left: Duration) -> Option<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let fd = self.fd.as_ref()?;
        if self.armed.is_none_or(|armed| armed > when) {
            // Zero would disarm the timer.
            let left = left.max(Duration::from_nanos(1));
            let value =
                Timespec { tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX), tv_nsec: left.subsec_nanos().into() };
            let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
            timerfd_settime(fd, TimerfdTimerFlags::empty(), &once).ok()?;
            self.armed = Some(when);
        }
        loop {
            fd.readable().await.ok()?;
            let mut ticks = [0_u8; 8];
            match fd.try_read(&mut ticks) {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                read => {
                    self.armed = None;
                    return read.ok().map(drop);
                }
            }
        }
    }
}
