//! URL to store: a table of schemes, which others may add to, with strict options.
//!
//! | URL | store | options |
//! |---|---|---|
//! | `memory:` | the tasks and threads that share the locker | |
//! | `memory:name` | all lockers of this process that use the name; in a test, each stands for a process | |
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
//! not percent-encoded, any part of a URL may be a part of a password. For the same reason an `@` after the host must be
//! written as `%40`.
//!
//! A store of another crate joins with [`register`]; the module [`store`](crate::store) shows how.

mod nodes;

use std::panic::AssertUnwindSafe;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use futures_util::FutureExt;

use crate::backend::Opened;
use crate::backends;
use crate::backends::prefixed::Prefixed;
use crate::error::{Error, Fault, Result};
use crate::store::{Context, Form, Opening, Registry, Scheme, Target, of_option};

/// The stores of this crate: one line each.
static BUILT_IN: &[&[Scheme]] = &[
    &backends::memory::SCHEMES,
    #[cfg(feature = "sqlite")]
    &backends::sqlite::SCHEMES,
    &backends::quorum::SCHEMES,
    #[cfg(feature = "redis")]
    &backends::redis::SCHEMES,
];

/// Whether a feature is compiled in, and the schemes that come with it: an error names the feature of one that is not there.
const FEATURES: [(&str, bool, &[&str]); 3] = [
    ("the feature \"sqlite\"", cfg!(feature = "sqlite"), &["sqlite"]),
    ("the feature \"redis\"", cfg!(feature = "redis"), &["redis", "redis+unix", "redis+sentinel", "redis+cluster"]),
    (
        "the features \"redis\" and \"tls\"",
        cfg!(all(feature = "redis", feature = "tls")),
        &["rediss", "rediss+sentinel", "rediss+cluster"],
    ),
];

/// Those of other crates. None of them ever goes.
static REGISTERED: RwLock<Vec<&'static Scheme>> = RwLock::new(Vec::new());

/// The way from a store that is made of others back to here.
pub(crate) const REGISTRY: Registry = Registry { read: parse, open: |target, context| Box::pin(open(target, context)) };

/// Makes a scheme known to the whole process, for as long as it lives. Registering the same one again changes nothing.
///
/// A name that is taken, by another crate or by a store of this one (compiled in or not), is an error, and so is one that no URL
/// can begin with.
pub fn register(scheme: &'static Scheme) -> Result<()> {
    scheme.check()?;
    let taken = |problem: &str| {
        let allowed = format!("a name that is none of {}", known());
        Err(Error::config(format!("the URL scheme {:?}", scheme.name), problem, allowed))
    };
    let built_in = BUILT_IN.iter().flat_map(|group| group.iter()).map(|scheme| scheme.name);
    if built_in.chain(FEATURES.iter().flat_map(|(_, _, names)| names.iter().copied())).any(|name| name == scheme.name) {
        return taken("is one of Tenure's own");
    }
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    match registered.iter().find(|other| other.name == scheme.name) {
        Some(same) if std::ptr::eq(*same, scheme) => Ok(()),
        Some(_) => {
            drop(registered);
            taken("is registered already, for another store")
        }
        None => {
            registered.push(scheme);
            Ok(())
        }
    }
}

/// The URL schemes that this process knows, whether compiled in or not, and those that others have registered.
pub fn schemes() -> impl Iterator<Item = &'static str> {
    let absent = FEATURES.iter().filter(|(_, is_there, _)| !is_there).flat_map(|(_, _, names)| names.iter().copied());
    table().into_iter().map(|scheme| scheme.name).chain(absent)
}

/// Every scheme that can be opened.
fn table() -> Vec<&'static Scheme> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    BUILT_IN.iter().flat_map(|group| group.iter()).chain(registered.iter().copied()).collect()
}

fn known() -> String {
    schemes().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ")
}

fn find(name: &str) -> Result<&'static Scheme> {
    if let Some(scheme) = table().into_iter().find(|scheme| scheme.name == name) {
        return Ok(scheme);
    }
    let Some((feature, _, names)) = FEATURES.iter().find(|(_, _, names)| names.contains(&name)) else {
        return Err(Error::config("the URL's scheme", "is unknown", known()));
    };
    let name = names.iter().find(|known| **known == name).unwrap_or(&"");
    let fix = format!("builds with {feature}");
    Err(Error::config(format!("the URL scheme {name:?}"), "is not compiled in", fix))
}

/// Takes a URL apart and checks it.
pub(crate) fn parse(url: &str) -> Result<Target> {
    // The rest of a URL may hold a password and stays out of every error.
    let Some((name, rest)) = url.split_once(':') else {
        return Err(Error::config("the URL", "has no scheme", known()));
    };
    let scheme = find(name)?;
    match scheme.form {
        Form::Nodes => nodes::parse(scheme, rest),
        Form::Host | Form::Local => Target::read(scheme, rest),
    }
}

/// Opens the store of a URL.
async fn open(target: Target, context: Context) -> Result<Opened> {
    let Target { scheme, address, .. } = target;
    let (timeout, is_ours) =
        (context.timeout, BUILT_IN.iter().flat_map(|group| group.iter()).any(|own| std::ptr::eq(own, scheme)));
    let opening: Opening = (scheme.open)(address, context);
    // Ours bound each step by themselves: those that are made of several may take longer.
    if is_ours { opening.await } else { within(timeout, scheme, opening).await }
}

/// Opens a store under the prefix of its context, if that has one.
pub(crate) async fn prefixed(context: Context, open: impl FnOnce(Context) -> Opening) -> Result<Opened> {
    // Before anything is opened that would have to be closed.
    let layer = layer(&context.prefix)?;
    Ok(layered(open(context).await?, layer))
}

/// Puts a prefix before every name of a store; an empty one changes nothing.
pub(crate) fn under(prefix: &str, opened: Opened) -> Result<Opened> {
    Ok(layered(opened, layer(prefix)?))
}

fn layered(opened: Opened, layer: Option<Prefixed>) -> Opened {
    match layer {
        Some(layer) => opened.layered(layer),
        None => opened,
    }
}

fn layer(prefix: &str) -> Result<Option<Prefixed>> {
    let prefix = Some(prefix).filter(|prefix| !prefix.is_empty());
    prefix.map(|prefix| Prefixed::new(prefix.to_owned())).transpose().map_err(|e| of_option("prefix", e))
}

/// Opens the store of another crate, which may hang or panic.
async fn within(timeout: Duration, scheme: &Scheme, opening: Opening) -> Result<Opened> {
    let failed = |fault, detail: &str| Error::unavailable(scheme.name, "connecting", fault, detail);
    match tokio::time::timeout(timeout, AssertUnwindSafe(opening).catch_unwind()).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(_)) => Err(failed(Fault::Protocol, "the store has panicked")),
        Err(_) => Err(failed(Fault::Timeout, &format!("no answer within {timeout:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Label;

    fn labelled(url: &str) -> Option<Label> {
        parse(url).ok()?.label
    }

    #[test]
    fn every_feature_names_its_schemes() {
        let of_features = FEATURES.iter().filter(|(_, is_there, _)| *is_there).flat_map(|(_, _, names)| names.iter().copied());
        let mut expected: Vec<&str> = of_features.chain(["memory", "quorum"]).collect();
        let mut built_in: Vec<&str> = BUILT_IN.iter().flat_map(|group| group.iter()).map(|scheme| scheme.name).collect();
        expected.sort_unstable();
        built_in.sort_unstable();
        assert_eq!(expected, built_in);
        for scheme in BUILT_IN.iter().flat_map(|group| group.iter()) {
            scheme.check().unwrap_or_else(|e| panic!("{e}"));
        }
    }

    #[test]
    fn a_scheme_that_cannot_be_is_not_registered() {
        macro_rules! scheme {
            ($name:literal) => {{
                static SCHEME: Scheme = Scheme::new($name, |_, _| Box::pin(async { Err(Error::Closed) }));
                &SCHEME
            }};
            ($name:literal $($options:literal)*) => {{
                static SCHEME: Scheme = Scheme::new($name, |_, _| Box::pin(async { Err(Error::Closed) })).options(&[$($options),*]);
                &SCHEME
            }};
        }
        for (bad, why) in [
            (scheme!("memory"), "is one of Tenure's own; allowed: a name that is none of memory:"),
            (scheme!("redis+unix"), "is one of Tenure's own"),
            (scheme!(""), "is no scheme; allowed: a lower-case letter"),
            (scheme!("Toy"), "is no scheme"),
            (scheme!("1toy"), "is no scheme"),
            (scheme!("to:y"), "is no scheme"),
            (scheme!("toy" "lease"), "\"lease\" of toy: is read for every scheme"),
            (scheme!("toy" "a" "a"), "\"a\" of toy: is there twice"),
            (scheme!("toy" "a=b"), "is no option"),
        ] {
            let error = register(bad).expect_err(why).to_string();
            assert!(error.contains(why), "{error}");
        }
        let good = scheme!("toy" "size");
        register(good).expect("registered");
        register(good).expect("the same");
        let other = register(scheme!("toy")).expect_err("another").to_string();
        assert!(other.contains("is registered already") && other.contains("toy:"), "{other}");
        assert!(schemes().any(|name| name == "toy"));
        assert!(parse("toy:?sice=1").is_err_and(|e| e.to_string().contains("lease, timeout, prefix, linger, size")));
        assert_eq!(labelled("toy://u:p@h?size=1").expect("a label").address, "toy://h/");
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
    fn what_may_be_a_part_of_a_password_is_in_no_error() {
        for url in [
            "quorum:redis://u:abc|hunter2@h:6379|redis://b",
            "hunter2@h:6379",
            "quorum:redis://u:a?hunter2@h|redis://b|redis://c",
        ] {
            let Err(error) = parse(url).and_then(|target| parse(target.address.place.split('|').nth(1).unwrap_or("memory:")))
            else {
                continue;
            };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        let error = parse("quorum:redis://a|redis://b|redis://c?quarantin=off").expect_err("refused").to_string();
        assert!(!error.contains("quarantin\"") && error.contains("quarantine"), "{error}");
        let without_name = parse("quorum:redis://a|redis://b|redis://c?=off").expect_err("no option is passed over");
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
