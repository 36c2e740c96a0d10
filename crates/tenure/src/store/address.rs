//! The parts of a URL that a store gets. None of them is shown as written: with a `?`, a `/` or a `|` in a password that is not
//! percent-encoded, any part of a URL may be a part of a password.

use std::fmt;

use super::{Form, Options, Scheme, StoreOptions, decode, key};
use crate::error::{Error, Result};
use crate::secret::Secret;

/// The parts of a URL that a store gets: all except the options that all stores share. Credentials are apart.
pub struct Address {
    pub(crate) scheme: &'static str,
    pub(crate) place: String,
    pub(crate) credentials: Option<Credentials>,
    pub(crate) options: Options,
}

impl Address {
    /// The scheme by which it was asked for.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        self.scheme
    }

    /// The part between the scheme's colon and the options, without credentials, percent-encoded as it was:
    /// `//host:1234/path`.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The login, if the URL has one.
    #[must_use]
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }

    /// The options of the scheme that the URL has.
    pub fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// An error about this URL: what is wrong with it, and how URLs of this scheme look. Neither should show a part of it.
    pub fn refuse(&self, problem: impl Into<String>, allowed: impl Into<String>) -> Error {
        Error::config(the_url(self.scheme), problem, allowed)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// A login. Its `Debug` shows nothing.
#[derive(Clone)]
pub struct Credentials {
    user: Option<String>,
    password: Option<Secret>,
}

impl Credentials {
    /// A user, if the store has users, and a password.
    pub fn new(user: Option<&str>, password: impl Into<String>) -> Self {
        Self { user: user.map(str::to_owned), password: Some(Secret::given(password.into())) }
    }

    /// `None` if there is neither.
    #[cfg(feature = "redis")]
    pub(crate) fn given(user: Option<String>, password: Option<String>) -> Option<Self> {
        (user.is_some() || password.is_some()).then(|| Self { user, password: password.map(Secret::given) })
    }

    #[cfg(feature = "redis")]
    pub(crate) fn into_parts(self) -> (Option<String>, Option<String>) {
        (self.user, self.password.map(Secret::into_text))
    }

    /// The user, if one is named.
    #[must_use]
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The password, if there is one.
    #[must_use]
    pub fn password(&self) -> Option<&Secret> {
        self.password.as_ref()
    }

    /// Of `user:password`. `None` if that is not UTF-8.
    fn parse(login: &str) -> Option<Self> {
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let given = |text: &str| decode(text).map(|text| Some(text).filter(|text| !text.is_empty()));
        Some(Self { user: given(user)?, password: given(password)?.map(Secret::given) })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Which store a URL names, without credentials: the same in every process that spells the URL alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) address: String,
    pub(crate) prefix: String,
}

/// A URL, taken apart and checked.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) scheme: &'static Scheme,
    pub(crate) address: Address,
    /// `None` where every locker has a store of its own.
    pub(crate) label: Option<Label>,
}

impl Target {
    /// Takes a URL of one store apart.
    pub(crate) fn read(scheme: &'static Scheme, rest: &str) -> Result<Self> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, credentials) = split(scheme, rest)?;
        let options = Options::parse(query, scheme)?;
        let has_at = |pair: &str| pair.contains('@') && !scheme.is_secret(key(pair));
        if scheme.form == Form::Host && query.split('&').any(has_at) {
            return Err(misplaced(the_url(scheme.name)));
        }
        let label = label(scheme, &place, &options);
        Ok(Self { scheme, address: Address { scheme: scheme.name, place, credentials, options }, label })
    }
}

fn the_url(scheme: &str) -> String {
    format!("the {scheme}: URL")
}

/// An `@` where a part of a password may have come to stand.
pub(crate) fn misplaced(asked: String) -> Error {
    let allowed = "%40 for an @ behind the host; and %2F, %3F, %23 and %7C for /, ?, # and | in a password";
    Error::config(asked, "has an @ where none can be", allowed)
}

/// Takes the credentials out of what stands before the options.
fn split(scheme: &Scheme, rest: &str) -> Result<(String, Option<Credentials>)> {
    let refuse = |problem: &str, allowed: &str| Err(Error::config(the_url(scheme.name), problem, allowed));
    let bare = rest.trim_start_matches('/');
    let (slashes, (authority, path)) = (&rest[..rest.len() - bare.len()], bare.split_at(bare.find('/').unwrap_or(bare.len())));
    if scheme.form == Form::Local {
        // A login would be taken for a part of the path.
        return match slashes == "//" && authority.contains('@') || rest.contains("://") {
            true => refuse("names a host", "a path, and nothing before it"),
            false => Ok((rest.to_owned(), None)),
        };
    }
    // Before a part of a password with a / in it is taken for a host or a path.
    if path.contains('@') {
        return Err(misplaced(the_url(scheme.name)));
    }
    if rest.contains('#') {
        return refuse("has a fragment", "%23 for a # in a password, and none elsewhere; TLS is always verified");
    }
    let (login, hosts) = authority.rsplit_once('@').map_or((None, authority), |(login, hosts)| (Some(login), hosts));
    let port = |host: &str| host.rsplit_once(']').map_or(host, |(_, port)| port).split_once(':').map(|(_, port)| port.to_owned());
    if hosts.split(',').filter_map(port).any(|port| port.parse::<u16>().is_err()) {
        return refuse("has a host that cannot be read", "host, host:port or [address]:port, and before an @ user:password");
    }
    let credentials = match login.map(Credentials::parse) {
        Some(None) => return refuse("is not UTF-8", "UTF-8, percent-encoded"),
        read => read.flatten(),
    };
    Ok((format!("{slashes}{hosts}{path}"), credentials))
}

impl Label {
    /// Of options that are set in code. `None` where every locker has a store of its own.
    pub(crate) fn of(options: &dyn StoreOptions, prefix: &str) -> Option<Self> {
        Some(Self { address: format!("{}:{}", options.scheme(), options.place()?), prefix: prefix.to_owned() })
    }
}

fn label(scheme: &Scheme, place: &str, options: &Options) -> Option<Label> {
    if scheme.own_store && place.is_empty() {
        return None;
    }
    let place = match scheme.form {
        Form::Host => {
            let bare = place.trim_start_matches('/');
            let (hosts, path) = bare.split_once('/').unwrap_or((bare, ""));
            let mut hosts: Vec<&str> = hosts.split(',').collect();
            // The order in which servers are listed says nothing.
            hosts.sort_unstable();
            format!("//{}/{path}", hosts.join(","))
        }
        Form::Local | Form::Nodes => place.to_owned(),
    };
    let named = scheme.place.iter().filter_map(|name| Some(format!("{name}={}", options.get(name)?)));
    let named: Vec<String> = named.collect();
    let mark = if named.is_empty() { "" } else { "?" };
    let address = format!("{}:{place}{mark}{}", scheme.name, named.join("&"));
    Some(Label { address, prefix: options.get("prefix").unwrap_or_default().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    static HOST: Scheme = Scheme::new("toy", |_, _| Box::pin(async { Err(Error::Closed) })).options(&["size"]).place(&["table"]);
    static LOCAL: Scheme = Scheme::new("toy", |_, _| Box::pin(async { Err(Error::Closed) })).local();

    #[test]
    fn credentials_are_taken_off_and_decoded() {
        let target = Target::read(&HOST, "//us%40er:p%3A@w@h:1,a/x%2Fy/3?size=1&table=t").expect("good");
        let login = target.address.credentials().expect("a login");
        assert_eq!((login.user(), login.password().map(Secret::text)), (Some("us@er"), Some("p:@w")));
        assert_eq!(target.address.place(), "//h:1,a/x%2Fy/3");
        assert_eq!(target.label.as_ref().expect("a label").address, "toy://a,h:1/x%2Fy/3?table=t");
        assert!(!format!("{target:?} {login:?}").contains("p:"));
        let only = |rest| Target::read(&HOST, rest).expect("good").address.credentials;
        let password = only("//:pw@h").expect("a login");
        assert_eq!((password.user(), password.password().map(Secret::text)), (None, Some("pw")));
        assert!(only("//h").is_none() && only("//user@h").expect("a login").password().is_none());
    }

    #[test]
    fn what_may_be_a_part_of_a_password_is_refused_and_not_shown() {
        for rest in
            ["//u:hunter2/x@h", "//u:hunter2", "//u:hunter2#@h", "//u:1?size=hunter2@h", "//u:%ffhunter2@h", "u:hunter2@h:x"]
        {
            let error = Target::read(&HOST, rest).expect_err(rest);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        // Also where somebody has left out the slashes.
        assert_eq!(Target::read(&HOST, "u:hunter2@h").expect("good").label.expect("a label").address, "toy://h/");
    }

    #[test]
    fn a_path_may_have_an_at_and_a_login_before_it_is_refused() {
        assert_eq!(Target::read(&LOCAL, "/tmp/a@b").expect("good").label.expect("a label").address, "toy:/tmp/a@b");
        for rest in ["//u:hunter2@h/x", "redis://u:hunter2@h"] {
            let error = Target::read(&LOCAL, rest).expect_err(rest);
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
