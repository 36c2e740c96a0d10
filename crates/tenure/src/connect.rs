//! URL to backend: a static table of schemes, with strict options.
//!
//! | URL | store | options |
//! |---|---|---|
//! | `memory:` | this process | |
//! | `sqlite:` | the user's file in the state directory: all processes of one machine | `share`, `filesystem` |
//! | `sqlite:/path/to/file` | another file | the same |
//! | `redis://[user:password@]host[:port][/db]` | a Redis server | `layout`, `token_ttl`, `wake`, `sync`, `sync_timeout`, `pass_file` |
//! | `redis+unix:///path/to/socket` | the same over a unix socket | the same, `db`, `user`, `pass` |
//! | `redis+sentinel://[user:password@]sentinel[:port],…/master[/db]` | the master that sentinels name | as `redis:`, `sentinel_user`, `sentinel_pass`, `sentinel_pass_file` |
//! | `redis+cluster://[user:password@]node[:port],…` | a Redis Cluster | as `redis:`, `sharded` |
//! | `quorum:redis://a\|redis://b\|redis://c` | three, five or seven stores that make one lock | `node_timeout`, `quarantine`, and those of the nodes |
//! | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS, always verified | the same, `ca`, `cert`, `key` |
//!
//! Every URL takes `lease` (default `30s`), `timeout` (default `3s`) and `prefix` (put before every name). An unknown
//! option is an error that names the known ones.
//!
//! An error about a URL says which part of it is wrong, and never shows it: with a `?`, a `/` or a `|` in a password that is
//! not percent-encoded, any part of a URL may be a part of a password. For the same reason an `@` behind the host has to be
//! written as `%40`.

mod options;

use std::time::Duration;

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;

use crate::backend::{Client, Opened};
use crate::backends::prefixed::Prefixed;
use crate::clock::{Clock, Drift};
use crate::engine::Label;
use crate::error::{Error, Result};
pub(crate) use options::{Options, of_option};

/// What a backend needs beside its URL.
#[cfg_attr(not(all(feature = "redis", feature = "sqlite")), allow(dead_code, reason = "not every store needs all of it"))]
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    pub(crate) timeout: Duration,
    /// The lease of claims that give none.
    pub(crate) lease: Duration,
    pub(crate) drift: Drift,
    /// What all names begin with: a store may keep what belongs to no name under it too.
    pub(crate) prefix: String,
}

type Open = fn(Address, Context) -> BoxFuture<'static, Result<Opened>>;

/// A row of the table.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    feature: &'static str,
    options: &'static [&'static str],
    /// Absent when the feature is.
    open: Option<Open>,
}

/// What a backend is given of its URL: all but the options that it shares with the others.
#[cfg_attr(not(all(feature = "redis", feature = "sqlite")), allow(dead_code, reason = "not every store needs all of it"))]
pub(crate) struct Address {
    pub(crate) scheme: &'static str,
    pub(crate) rest: String,
    pub(crate) options: Options,
}

const COMMON: [&str; 3] = ["lease", "timeout", "prefix"];
/// The options of every scheme of Redis, and with them those of one scheme.
macro_rules! redis {
    ($name:literal $($own:literal)*) => {
        Scheme {
            name: $name,
            feature: "redis",
            options: &["layout", "semaphore", "token_ttl", "wake", "sync", "sync_timeout", "pass_file", $($own),*],
            open: OPEN_REDIS,
        }
    };
}

#[cfg(feature = "redis")]
const OPEN_REDIS: Option<Open> = Some(crate::backends::redis::open);
#[cfg(not(feature = "redis"))]
const OPEN_REDIS: Option<Open> = None;
#[cfg(feature = "sqlite")]
const OPEN_SQLITE: Option<Open> = Some(crate::backends::sqlite::open);
#[cfg(not(feature = "sqlite"))]
const OPEN_SQLITE: Option<Open> = None;

/// Options of a quorum itself. The others after its last node are those of every node.
const QUORUM: [&str; 2] = ["node_timeout", "quarantine"];

static SCHEMES: [Scheme; 10] = [
    Scheme { name: "memory", feature: "", options: &[], open: Some(crate::backends::memory::open) },
    Scheme { name: "sqlite", feature: "sqlite", options: &["share", "filesystem"], open: OPEN_SQLITE },
    Scheme { name: "quorum", feature: "", options: &QUORUM, open: Some(crate::backends::quorum::open) },
    redis!("redis"),
    redis!("redis+unix" "db" "user" "pass"),
    redis!("redis+sentinel" "sentinel_user" "sentinel_pass" "sentinel_pass_file"),
    redis!("redis+cluster" "sharded"),
    redis!("rediss" "ca" "cert" "key"),
    redis!("rediss+sentinel" "sentinel_user" "sentinel_pass" "sentinel_pass_file" "ca" "cert" "key"),
    redis!("rediss+cluster" "sharded" "ca" "cert" "key"),
];

/// The URL schemes that this build knows, whether compiled in or not.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    SCHEMES.iter().map(|s| s.name)
}

/// A URL, taken apart and checked.
pub(crate) struct Target {
    pub(crate) scheme: &'static Scheme,
    pub(crate) rest: String,
    pub(crate) options: Options,
}

impl Target {
    pub(crate) fn is_quorum(&self) -> bool {
        self.scheme.name == "quorum"
    }

    /// Whether another server may take over.
    pub(crate) fn fails_over(&self) -> bool {
        self.scheme.name.ends_with("+sentinel") || self.scheme.name.ends_with("+cluster")
    }
}

pub(crate) fn parse(url: &str) -> Result<Target> {
    let known = || schemes().map(|s| format!("{s}:")).collect::<Vec<_>>().join(", ");
    // The rest of a URL may hold a password and stays out of every error.
    let Some((name, rest)) = url.split_once(':') else {
        return Err(Error::config("the URL", "has no scheme", known()));
    };
    let Some(scheme) = SCHEMES.iter().find(|s| s.name == name) else {
        return Err(Error::config("the URL's scheme", "is unknown", known()));
    };
    if scheme.open.is_none() {
        let fix = format!("builds with the feature {:?}", scheme.feature);
        return Err(Error::config(format!("the URL scheme {:?}", scheme.name), "is not compiled in", fix));
    }
    if scheme.name == "quorum" {
        // What looks like options of all nodes may be the rest of a password, and its beginning a host or a port.
        let after_last = rest.rsplit('|').next().and_then(|last| last.split_once('?')).map_or("", |(_, query)| query);
        if rest.split('|').any(names_server) && at_in_plain_option(after_last) {
            return Err(misplaced("an option of quorum:".to_owned()));
        }
        let (rest, query) = nodes_and_options(rest);
        if let Some(node) = rest.split('|').position(has_unknown_option) {
            let asked = format!("an option of node {} of quorum:, or of all of them,", node + 1);
            let allowed = COMMON.iter().chain(&QUORUM).copied().collect::<Vec<_>>().join(", ");
            return Err(Error::config(asked, "is unknown", format!("{allowed}, or those of its nodes")));
        }
        if let Some(node) = rest.split('|').position(|node| node.contains('@') && !names_server(node)) {
            return Err(misplaced(format!("node {} of quorum:", node + 1)));
        }
        return Ok(Target { scheme, rest, options: Options::parse(&query, scheme)? });
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if scheme.is_server() {
        check_server(scheme, rest)?;
    }
    let options = Options::parse(query, scheme)?;
    if scheme.is_server() && at_in_plain_option(query) {
        return Err(misplaced(format!("the {}: URL", scheme.name)));
    }
    Ok(Target { scheme, rest: rest.to_owned(), options })
}

impl Scheme {
    /// Whether its URLs have a host, and before it a place for a password.
    fn is_server(&self) -> bool {
        self.feature == "redis" && !self.name.ends_with("+unix")
    }
}

fn names_server(node: &str) -> bool {
    let name = node.split_once(':').map_or("", |(name, _)| name);
    SCHEMES.iter().any(|scheme| scheme.name == name && scheme.is_server())
}

/// Refuses what may be a password with a `/` in it, before a part of it is taken for a host or a path.
fn check_server(scheme: &Scheme, rest: &str) -> Result<()> {
    let rest = rest.trim_start_matches('/');
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') {
        return Err(misplaced(format!("the {}: URL", scheme.name)));
    }
    let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
    let port = |host: &str| host.rsplit_once(']').map_or(host, |(_, port)| port).split_once(':').map(|(_, port)| port.to_owned());
    if hosts.split(',').filter_map(port).any(|port| port.parse::<u16>().is_err()) {
        let allowed = "host, host:port or [address]:port, and before an @ user:password";
        return Err(Error::config(format!("the {}: URL", scheme.name), "has a host that cannot be read", allowed));
    }
    Ok(())
}

/// Options that are read as they are, whatever stands in them.
const SECRETS: [&str; 2] = ["pass", "sentinel_pass"];

fn at_in_plain_option(query: &str) -> bool {
    let plain = |pair: &&str| !SECRETS.contains(&key(pair));
    query.split('&').filter(plain).any(|pair| pair.contains('@'))
}

fn misplaced(asked: String) -> Error {
    let allowed = "%40 for an @ behind the host; and %2F, %3F, %23 and %7C for /, ?, # and | in a password";
    Error::config(asked, "has an @ where none can be", allowed)
}

fn key(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key)
}

/// What stands after the last node is the quorum's, or else said of each node that does not say it for itself.
fn nodes_and_options(rest: &str) -> (String, String) {
    let mut nodes: Vec<String> = rest.split('|').map(str::to_owned).collect();
    let last = nodes.pop().unwrap_or_default();
    let (last, query) = last.split_once('?').unwrap_or((&last, ""));
    nodes.push(last.to_owned());
    let is_ours = |pair: &&str| COMMON.iter().chain(&QUORUM).any(|known| *known == key(pair));
    let (ours, of_nodes): (Vec<&str>, Vec<&str>) = query.split('&').filter(|pair| !pair.is_empty()).partition(is_ours);
    for node in &mut nodes {
        for pair in &of_nodes {
            let own = node.split_once('?').map_or("", |(_, own)| own);
            if !own.split('&').any(|own| !own.is_empty() && key(own) == key(pair)) {
                let sign = if own.is_empty() { '?' } else { '&' };
                *node = format!("{}{sign}{pair}", node.trim_end_matches('?'));
            }
        }
    }
    (nodes.join("|"), ours.join("&"))
}

/// Whether a node has an option that no store has.
fn has_unknown_option(node: &str) -> bool {
    let is_known = |key: &str| SCHEMES.iter().flat_map(|scheme| scheme.options).chain(&COMMON).any(|known| *known == key);
    let query = node.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter(|pair| !pair.is_empty()).any(|pair| !is_known(key(pair)))
}

/// `None` where every locker has a store of its own.
pub(crate) fn label(target: &Target) -> Option<Label> {
    let Target { scheme, rest, options } = target;
    let prefix = options.get("prefix").unwrap_or_default().to_owned();
    if scheme.name == "memory" {
        return None;
    }
    if scheme.name == "quorum" {
        let nodes = rest.split('|').map(|node| Some(label(&parse(node).ok()?)?.address));
        let mut nodes: Vec<String> = nodes.collect::<Option<_>>()?;
        nodes.sort_unstable();
        return Some(Label { address: format!("quorum:{}", nodes.join("|")), prefix });
    }
    // Paths of sockets and files may have an @ in them; before those of servers stands what must not be shown.
    let place = if scheme.is_server() {
        let public = rest.rsplit_once('@').map_or(&**rest, |(_, public)| public).trim_start_matches('/');
        let (hosts, path) = public.split_once('/').unwrap_or((public, ""));
        let mut hosts: Vec<&str> = hosts.split(',').collect();
        // The order in which servers are listed says nothing.
        hosts.sort_unstable();
        format!("//{}/{path}", hosts.join(","))
    } else {
        rest.clone()
    };
    // Sockets have it among the options.
    let db = options.get("db").map(|db| format!("?db={db}")).unwrap_or_default();
    let address = format!("{}:{place}{db}", scheme.name);
    Some(Label { address, prefix })
}

pub(crate) async fn open(target: Target, mut context: Context) -> Result<Opened> {
    let Target { scheme, rest, mut options } = target;
    let Some(open) = scheme.open else { return Err(Error::Closed) };
    let prefix = options.take("prefix");
    context.prefix.push_str(prefix.as_deref().unwrap_or_default());
    let opened = open(Address { scheme: scheme.name, rest, options }, context).await?;
    match prefix {
        Some(prefix) => Ok(opened.layered(Prefixed::new(prefix).map_err(|e| of_option("prefix", e))?)),
        None => Ok(opened),
    }
}

/// Undoes percent-encoding; `None` if the result is not UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labelled(url: &str) -> Option<Label> {
        label(&parse(url).ok()?)
    }

    #[test]
    fn stores_of_one_locker_have_no_label() {
        assert_eq!(labelled("memory:?prefix=p"), None);
    }

    #[test]
    #[cfg(feature = "sqlite")]
    fn a_label_of_a_file_is_its_path() {
        let label = labelled("sqlite:/tmp/a@b.db?prefix=p:").expect("a label");
        assert_eq!((&*label.address, &*label.prefix), ("sqlite:/tmp/a@b.db", "p:"));
    }

    #[test]
    fn options_after_the_last_node_are_the_quorums_or_every_nodes() {
        let split = |rest| nodes_and_options(rest);
        let owned = |(nodes, ours): (&str, &str)| (nodes.to_owned(), ours.to_owned());
        assert_eq!(split("redis://a|redis://b"), owned(("redis://a|redis://b", "")));
        let given = "redis://a?wake=pubsub|redis://b?|rediss://c/1?lease=3s&wake=tracking&quarantine=off&ca=x";
        let nodes = "redis://a?wake=pubsub&ca=x|redis://b?wake=tracking&ca=x|rediss://c/1?wake=tracking&ca=x";
        assert_eq!(split(given), owned((nodes, "lease=3s&quarantine=off")));
    }

    #[test]
    fn what_may_be_a_part_of_a_password_is_in_no_error() {
        for url in [
            "quorum:redis://u:abc|hunter2@h:6379|redis://b",
            "hunter2@h:6379",
            "quorum:redis://u:a?hunter2@h|redis://b|redis://c",
        ] {
            let Err(error) = parse(url).and_then(|target| parse(target.rest.split('|').nth(1).unwrap_or("memory:"))) else {
                continue;
            };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let error = parse("quorum:redis://a|redis://b|redis://c?quarantin=off").err().expect("refused").to_string();
        assert!(!error.contains("quarantin\"") && error.contains("quarantine"), "{error}");
        let without_name = parse("quorum:redis://a|redis://b|redis://c?=off").err().expect("no option is passed over");
        assert!(without_name.to_string().contains("is unknown"), "{without_name}");
    }

    #[test]
    #[cfg(feature = "redis")]
    fn a_label_of_a_quorum_has_no_credentials_and_no_order() {
        let label = |url| labelled(url).expect("a label");
        let one = label("quorum:redis://u:p@b:1|redis://a:1|redis://c:1?prefix=p:");
        assert_eq!((&*one.address, &*one.prefix), ("quorum:redis://a:1/|redis://b:1/|redis://c:1/", "p:"));
        assert_eq!(one, label("quorum:redis://a:1|redis://c:1|redis://x:y@b:1?prefix=p:&lease=3s"));
        assert_eq!(labelled("quorum:memory:|memory:|memory:"), None);
    }

    #[test]
    #[cfg(feature = "redis")]
    fn a_label_of_servers_has_no_credentials_and_no_order() {
        let label = |url| labelled(url).expect("a label").address;
        assert_eq!(label("redis://user:se@cret@host:1/2?lease=3s"), "redis://host:1/2");
        assert_eq!(label("redis+cluster://u:p@b:1,a:1"), label("redis+cluster://a:1,b:1"));
        assert_eq!(label("redis+unix:///s@t?db=1&pass=secret"), "redis+unix:///s@t?db=1");
    }
}
