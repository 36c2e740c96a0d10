//! Redis URLs: which servers, what the path names. Errors here never show the URL: it may hold a password.

use crate::error::{Error, Result};
use crate::store::decode;

/// What stands between the scheme and the options.
pub(super) struct Url {
    /// At least one.
    pub(super) hosts: Vec<(String, u16)>,
    /// The parts of the path that are not empty.
    pub(super) path: Vec<String>,
}

/// Says what is wrong with a URL, and what would be right.
pub(super) fn refuse(scheme: &str, problem: impl Into<String>) -> Error {
    let allowed = match scheme {
        "redis+unix" => "redis+unix:///path/to/socket".to_owned(),
        "redis+sentinel" | "rediss+sentinel" => format!("{scheme}://[user:password@]sentinel[:port],…/master-name[/db]"),
        "redis+cluster" | "rediss+cluster" => format!("{scheme}://[user:password@]node[:port],…"),
        _ => format!("{scheme}://[user:password@]host[:port][/db]"),
    };
    Error::config(format!("the {scheme}: URL"), problem, allowed)
}

impl Url {
    /// Reads `//host[:port],…[/path]`, of which the credentials have been taken off.
    pub(super) fn parse(scheme: &str, place: &str, default_port: u16) -> Result<Self> {
        let refuse = |problem: &str| refuse(scheme, problem);
        let text = |part: &str| decode(part).ok_or_else(|| refuse("is not UTF-8"));
        let rest = place.strip_prefix("//").ok_or_else(|| refuse("has no host"))?;
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts =
            hosts.split(',').map(|host| address(host, default_port).ok_or_else(|| refuse("has a host that cannot be read")));
        let path = path.split('/').filter(|part| !part.is_empty()).map(text).collect::<Result<_>>()?;
        Ok(Self { hosts: hosts.collect::<Result<_>>()?, path })
    }
}

/// Reads `host`, `host:port`, `[v6]`, `[v6]:port`.
fn address(text: &str, default_port: u16) -> Option<(String, u16)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
        }
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Some(default_port), |port| port.parse().ok().filter(|port| *port != 0))?;
    let host = decode(host).filter(|host| !host.is_empty() && !host.contains(['/', ' ']))?;
    Some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_ports_and_paths_are_told_apart() {
        let url = Url::parse("redis+sentinel", "//h1,h2:7,[::1]:8,[fe80::1]/my%2Fmaster/3", 26379).expect("good");
        let host = |name: &str, port| (name.to_owned(), port);
        assert_eq!(url.hosts, [host("h1", 26379), host("h2", 7), host("::1", 8), host("fe80::1", 26379)]);
        assert_eq!(url.path, ["my/master", "3"]);
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_being_shown() {
        for bad in ["", "host", "//", "//h:port", "//h:0", "//h:70000", "//h1,,h2", "//canary:", "//h%ff", "//[::1", "//[::1]x"] {
            let error = Url::parse("redis", bad, 6379).err().unwrap_or_else(|| panic!("{bad} was taken"));
            assert!(!error.to_string().contains("canary"), "{error}");
        }
    }
}
