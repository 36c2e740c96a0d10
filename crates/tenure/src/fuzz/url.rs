//! URLs and their options, up to where a connection would be made or a file opened.

use crate::connect;
use crate::error::Result;
use crate::secret::{CANARY, Secret};
use crate::store::{Address, Form, Target};

/// Whatever a URL says, what may be a part of its password is neither in errors nor in labels.
pub(super) fn read(data: &[u8]) {
    let Ok(url) = str::from_utf8(data) else { return };
    let hides = is_all_secret(url);
    let hidden = |text: &str| assert!(!hides || !text.contains(CANARY), "{url:?} is shown by {text:?}");
    let read = connect::parse(url).and_then(|target| {
        let label = target.label.clone();
        let nodes = target.address.place.split('|');
        let mut logins: String = nodes.clone().filter_map(|node| node.rsplit_once('@')).map(|(login, _)| login).collect();
        if let Some(login) = target.address.credentials() {
            logins = [login.user(), login.password().map(Secret::text)].into_iter().flatten().collect();
            assert!(!format!("{target:?} {login:?}").contains(CANARY) || !hides, "{url:?} is shown by {target:?}");
        }
        if let Some(label) = label.as_ref().filter(|_| logins.contains(CANARY) && has_login(url)) {
            let hosts: String = nodes.map(|node| node.rsplit_once('@').map_or(node, |(_, host)| host)).collect();
            assert!(hosts.contains(CANARY) || !label.address.contains(CANARY), "{url:?} is shown by {label:?}");
        }
        assert_eq!(label, connect::parse(url)?.label, "of {url:?}");
        if target.scheme.form == Form::Nodes { quorum(&target) } else { store(target.address) }
    });
    if let Err(error) = read {
        hidden(&error.to_string());
        hidden(&format!("{error:?}"));
    }
}

/// Whether the word stands only where secrets do: before an `@` of servers, or as a password among the options.
fn is_all_secret(url: &str) -> bool {
    url.match_indices(CANARY).all(|(at, _)| {
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
    for node in target.address.place.split('|') {
        let node = connect::parse(node)?;
        if node.scheme.form != Form::Nodes {
            store(node.address)?;
        }
    }
    Ok(())
}

#[cfg_attr(not(any(feature = "redis", feature = "sqlite")), allow(clippy::unnecessary_wraps, reason = "no store reads on"))]
fn store(address: Address) -> Result<()> {
    let scheme = address.scheme();
    #[cfg(feature = "redis")]
    if scheme.starts_with("redis") {
        return crate::backends::redis::fuzz::options(address);
    }
    #[cfg(feature = "sqlite")]
    if scheme == "sqlite" && !address.place.is_empty() {
        return crate::backends::sqlite::fuzz::options(&address.place, address.options);
    }
    Ok(())
}
