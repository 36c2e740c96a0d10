//! The locks that stories use: the name of the lock, and its terms for each way.

use std::time::Duration;

use crate::protocol::{LockSpec, SetNxSpec, TenureSpec};
use crate::virtual_address::HasPort;

/// The lock of the item that the shop sells.
pub(crate) const LOCK: &str = "lock:stock:1001";

/// The counter whose numbers are the tokens of some locks.
pub(crate) const COUNTER: &str = "token:stock:1001";

/// The interval between two attempts of the usual way: that of redis-py.
const POLL: Duration = Duration::from_millis(100);

/// The lock of common libraries on a server: renewed, and polled for.
pub(crate) fn setnx(server: &impl HasPort, ttl: Duration) -> LockSpec {
    LockSpec::SetNx(setnx_spec(server, ttl))
}

/// The same, with the number of a counter as its token.
pub(crate) fn setnx_counted(server: &impl HasPort, ttl: Duration, counter: &str) -> LockSpec {
    LockSpec::SetNx(SetNxSpec { counter: Some(counter.to_owned()), ..setnx_spec(server, ttl) })
}

/// The same, not renewed.
pub(crate) fn setnx_fixed(server: &impl HasPort, ttl: Duration) -> LockSpec {
    LockSpec::SetNx(SetNxSpec { renewed: false, ..setnx_spec(server, ttl) })
}

fn setnx_spec(server: &impl HasPort, ttl: Duration) -> SetNxSpec {
    SetNxSpec { port: server.port(), key: LOCK.to_owned(), ttl, renewed: true, poll: POLL, counter: None }
}

/// Tenure's lock at a URL, renewed.
pub(crate) fn tenure(url: impl Into<String>, lease: Duration) -> LockSpec {
    LockSpec::Tenure(tenure_spec(url, lease))
}

/// The same, not renewed.
pub(crate) fn tenure_fixed(url: impl Into<String>, lease: Duration) -> LockSpec {
    LockSpec::Tenure(TenureSpec { fixed: true, ..tenure_spec(url, lease) })
}

/// The same, granted in the order of the requests.
pub(crate) fn tenure_fair(url: impl Into<String>, lease: Duration) -> LockSpec {
    LockSpec::Tenure(TenureSpec { fair: true, ..tenure_spec(url, lease) })
}

fn tenure_spec(url: impl Into<String>, lease: Duration) -> TenureSpec {
    TenureSpec { url: url.into(), name: LOCK.to_owned(), lease, fixed: false, fair: false }
}
