//! URLs and their options, up to where a connection would be made or a file opened.

use super::SECRET;
use crate::connect::{self, Target};
use crate::error::Result;

/// Whatever a URL says, what may be a part of its password is neither in errors nor in labels.
pub(super) fn read(data: &[u8]) {
    let Ok(url) = str::from_utf8(data) else { return };
    let hides = is_all_secret(url);
    let hidden = |text: &str| assert!(!hides || !text.contains(SECRET), "{url:?} is shown by {text:?}");
    let read = connect::parse(url).and_then(|target| {
        let label = connect::label(&target);
        let nodes = target.rest.split('|');
        let logins: String = nodes.clone().filter_map(|node| node.rsplit_once('@')).map(|(login, _)| login).collect();
        if let Some(label) = label.as_ref().filter(|_| logins.contains(SECRET) && has_login(url)) {
            let hosts: String = nodes.map(|node| node.rsplit_once('@').map_or(node, |(_, host)| host)).collect();
            assert!(hosts.contains(SECRET) || !label.address.contains(SECRET), "{url:?} is shown by {label:?}");
        }
        assert_eq!(label, connect::label(&connect::parse(url)?), "of {url:?}");
        if target.is_quorum() { quorum(&target) } else { store(target) }
    });
    if let Err(error) = read {
        hidden(&error.to_string());
        hidden(&format!("{error:?}"));
    }
}

/// Whether the word stands only where secrets do: before an `@` of servers, or as a password among the options.
fn is_all_secret(url: &str) -> bool {
    url.match_indices(SECRET).all(|(at, _)| {
        let node = url[..at].rsplit('|').next().unwrap_or_default();
        let option = node.split_once('?').and_then(|(_, options)| options.rsplit('&').next()).unwrap_or_default();
        let is_password = option.starts_with("pass=") || option.starts_with("sentinel_pass=");
        is_password || has_login(url) && url[at..].contains('@')
    })
}

/// Whether there is a place for a login before the servers.
fn has_login(url: &str) -> bool {
    let (scheme, _) = url.split_once(':').unwrap_or_default();
    scheme == "quorum" || scheme.starts_with("redis") && scheme != "redis+unix"
}

fn quorum(target: &Target) -> Result<()> {
    for node in target.rest.split('|') {
        let node = connect::parse(node)?;
        if !node.is_quorum() {
            store(node)?;
        }
    }
    Ok(())
}

#[cfg_attr(not(any(feature = "redis", feature = "sqlite")), allow(clippy::unnecessary_wraps, reason = "no store reads on"))]
fn store(target: Target) -> Result<()> {
    let scheme = target.scheme.name;
    #[cfg(feature = "redis")]
    if scheme.starts_with("redis") {
        return crate::backends::redis::fuzz::options(scheme, &target.rest, target.options);
    }
    #[cfg(feature = "sqlite")]
    if scheme == "sqlite" && !target.rest.is_empty() {
        return crate::backends::sqlite::fuzz::options(&target.rest, target.options);
    }
    Ok(())
}
