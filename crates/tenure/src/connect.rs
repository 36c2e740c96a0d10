//! URL to backend: a static table of schemes, with strict options.
//!
//! | URL | store | options |
//! |---|---|---|
//! | `memory:` | this process | |
//! | `sqlite:` | the user's file in the state directory: all processes of one machine | |
//! | `sqlite:/path/to/file` | another file | |
//! | `redis://[user:password@]host[:port][/db]` | a Redis server | `layout`, `token_ttl`, `wake`, `sync`, `sync_timeout` |
//! | `redis+unix:///path/to/socket` | the same over a unix socket | the same, `db`, `user`, `pass` |
//! | `redis+sentinel://[user:password@]sentinel[:port],…/master[/db]` | the master that sentinels name | as `redis:`, `sentinel_user`, `sentinel_pass` |
//! | `redis+cluster://[user:password@]node[:port],…` | a Redis Cluster | as `redis:`, `sharded` |
//! | `quorum:redis://a\|redis://b\|redis://c` | three, five or seven stores that make one lock | `node_timeout`, `quarantine`, and those of the nodes |
//! | `rediss://…`, `rediss+sentinel://…`, `rediss+cluster://…` | the same over TLS, always verified | the same, `ca`, `cert`, `key` |
//!
//! Every URL takes `lease` (default `30s`), `timeout` (default `3s`) and `prefix` (put before every name). An unknown
//! option is an error that names the known ones.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use percent_encoding::percent_decode_str;

use crate::backend::{Backend, Client};
use crate::backends::prefixed::Prefixed;
use crate::clock::{Clock, Drift};
use crate::duration;
use crate::error::{Error, Result};

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
}

type Open = fn(Address, Context) -> BoxFuture<'static, Result<Arc<dyn Backend>>>;

/// A row of the table.
pub(crate) struct Scheme {
    name: &'static str,
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
            options: &["layout", "semaphore", "token_ttl", "wake", "sync", "sync_timeout", $($own),*],
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
    Scheme { name: "sqlite", feature: "sqlite", options: &[], open: OPEN_SQLITE },
    Scheme { name: "quorum", feature: "", options: &QUORUM, open: Some(crate::backends::quorum::open) },
    redis!("redis"),
    redis!("redis+unix" "db" "user" "pass"),
    redis!("redis+sentinel" "sentinel_user" "sentinel_pass"),
    redis!("redis+cluster" "sharded"),
    redis!("rediss" "ca" "cert" "key"),
    redis!("rediss+sentinel" "sentinel_user" "sentinel_pass" "ca" "cert" "key"),
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
    // What is no scheme at all may be a part of a password.
    let is_word = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'+');
    let shown: String = if is_word { name.chars().take(32).collect() } else { "…".to_owned() };
    let Some(scheme) = SCHEMES.iter().find(|s| s.name == name) else {
        return Err(Error::config(format!("the URL scheme {shown:?}"), "is unknown", known()));
    };
    if scheme.open.is_none() {
        let fix = format!("builds with the feature {:?}", scheme.feature);
        return Err(Error::config(format!("the URL scheme {shown:?}"), "is not compiled in", fix));
    }
    if scheme.name == "quorum" {
        let (rest, query) = nodes_and_options(rest);
        if let Some(unknown) = rest.split('|').find_map(unknown_option) {
            let asked = format!("the option {unknown:?} of quorum:");
            let allowed = COMMON.iter().chain(&QUORUM).copied().collect::<Vec<_>>().join(", ");
            return Err(Error::config(asked, "is unknown", format!("{allowed}, or those of its nodes")));
        }
        return Ok(Target { scheme, rest, options: Options::parse(&query, scheme)? });
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    Ok(Target { scheme, rest: rest.to_owned(), options: Options::parse(query, scheme)? })
}

/// What stands after the last node is the quorum's, or else said of each node that does not say it for itself.
fn nodes_and_options(rest: &str) -> (String, String) {
    let mut nodes: Vec<String> = rest.split('|').map(str::to_owned).collect();
    let last = nodes.pop().unwrap_or_default();
    let (last, query) = last.split_once('?').unwrap_or((&last, ""));
    nodes.push(last.to_owned());
    let key = |pair: &str| pair.split_once('=').map_or(pair, |(key, _)| key).to_owned();
    let is_ours = |pair: &&str| COMMON.iter().chain(&QUORUM).any(|known| *known == key(pair));
    let (ours, of_nodes): (Vec<&str>, Vec<&str>) = query.split('&').filter(|pair| !pair.is_empty()).partition(is_ours);
    for node in &mut nodes {
        for pair in &of_nodes {
            let own = node.split_once('?').map_or("", |(_, own)| own);
            if !own.split('&').any(|own| key(own) == key(pair)) {
                let sign = if own.is_empty() { '?' } else { '&' };
                *node = format!("{}{sign}{pair}", node.trim_end_matches('?'));
            }
        }
    }
    (nodes.join("|"), ours.join("&"))
}

/// An option that no store has.
fn unknown_option(node: &str) -> Option<String> {
    let (_, query) = node.split_once('?')?;
    let keys = query.split('&').map(|pair| pair.split_once('=').map_or(pair, |(key, _)| key));
    let is_known = |key: &str| SCHEMES.iter().flat_map(|scheme| scheme.options).chain(&COMMON).any(|known| *known == key);
    // With a question mark in a password, the option is a part of that.
    let unknown = keys.filter(|key| !key.is_empty()).find(|key| !is_known(key))?;
    Some(if unknown.contains('@') { "…".to_owned() } else { unknown.chars().take(32).collect() })
}

/// Which store a URL names, without credentials: the same in every process that spells the URL alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) address: String,
    pub(crate) prefix: String,
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
    let server = scheme.feature == "redis" && !scheme.name.ends_with("+unix");
    let place = if server {
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

pub(crate) async fn open(target: Target, context: Context) -> Result<Arc<dyn Backend>> {
    let Target { scheme, rest, mut options } = target;
    let Some(open) = scheme.open else { return Err(Error::Closed) };
    let prefix = options.take("prefix");
    let backend = open(Address { scheme: scheme.name, rest, options }, context).await?;
    match prefix {
        Some(prefix) => Ok(Arc::new(Prefixed::new(prefix, backend)?)),
        None => Ok(backend),
    }
}

/// The options of one URL. Values may be secrets: they are in no `Debug` and no error.
pub(crate) struct Options(Vec<(&'static str, String)>);

impl Options {
    fn parse(query: &str, scheme: &'static Scheme) -> Result<Self> {
        let allowed = || COMMON.iter().chain(scheme.options).copied().collect::<Vec<_>>().join(", ");
        let mut options: Vec<(&'static str, String)> = Vec::new();
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            // With a question mark in a password, the option is a part of that.
            let shown: String = if key.contains('@') { "…".to_owned() } else { key.chars().take(32).collect() };
            let asked = || format!("the option {shown:?} of {}:", scheme.name);
            let Some(key) = COMMON.iter().chain(scheme.options).find(|known| **known == key) else {
                return Err(Error::config(asked(), "is unknown", allowed()));
            };
            if options.iter().any(|(k, _)| k == key) {
                return Err(Error::config(asked(), "is given twice", "each option once"));
            }
            let value = decode(value).ok_or_else(|| Error::config(asked(), "is not UTF-8", "UTF-8, percent-encoded"))?;
            if value.is_empty() {
                return Err(Error::config(asked(), "has no value", "option=value"));
            }
            options.push((key, value));
        }
        Ok(Self(options))
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(k, _)| *k == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The first of the options that every URL takes.
    pub(crate) fn first_common(&self) -> Option<&'static str> {
        self.0.iter().map(|(key, _)| *key).find(|key| COMMON.contains(key))
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| *k == name).map(|(_, value)| &**value)
    }

    /// An option that takes one of a few words.
    #[cfg_attr(not(feature = "redis"), allow(dead_code, reason = "only Redis has such options"))]
    pub(crate) fn one_of<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(given) = self.take(name) else { return Ok(None) };
        let known = words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning);
        let allowed = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        known.map(Some).ok_or_else(|| Error::config(format!("the {name} {given:?}"), "is unknown", allowed()))
    }

    pub(crate) fn duration(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take(name).map(|text| duration::parse(&text)).transpose()
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
        assert!(error.contains("quarantin\"") && error.contains("quarantine"), "{error}");
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
