//! [`Scheme`]: a row in the table of stores.

use std::fmt;

use super::options::COMMON;
use super::{Address, Context, Opening};
use crate::error::{Error, Result};

/// Opens a store.
pub type Open = fn(Address, Context) -> Opening;

/// A URL scheme: how its URLs look, and how the store that one names is opened. Made in a `static`, because it is known for as
/// long as the process lives.
pub struct Scheme {
    pub(crate) name: &'static str,
    pub(crate) open: Open,
    pub(crate) form: Form,
    options: &'static [&'static str],
    secrets: &'static [&'static str],
    pub(crate) place: &'static [&'static str],
    pub(crate) own_store: bool,
    pub(crate) fails_over: bool,
}

/// What stands between the scheme and the options of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// `//[user:password@]host[:port],…[/path]`.
    Host,
    /// A file, a socket, or nothing.
    Local,
    /// Other URLs, with `|` between them.
    Nodes,
}

impl Scheme {
    /// A scheme with this name, lower-case, without the colon. Its URLs are `name://[user:password@]host[:port],…[/path]`, and have
    /// the options that every URL has.
    #[must_use]
    pub const fn new(name: &'static str, open: Open) -> Self {
        let none = &[];
        Self { name, open, form: Form::Host, options: none, secrets: none, place: none, own_store: false, fails_over: false }
    }

    /// Its options. `lease`, `timeout` and `prefix` are read for it.
    #[must_use]
    pub const fn options(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// Options whose values are secrets, beside the others.
    #[must_use]
    pub const fn secrets(self, secrets: &'static [&'static str]) -> Self {
        Self { secrets, ..self }
    }

    /// Options that say which store it is, beside the others and the rest of the URL: a database, a table. Two URLs that differ in
    /// one of them name two stores. Their values are shown.
    #[must_use]
    pub const fn place(self, place: &'static [&'static str]) -> Self {
        Self { place, ..self }
    }

    /// Its URLs have no host, but a path or a name, in which an `@` has no meaning.
    #[must_use]
    pub const fn local(self) -> Self {
        Self { form: Form::Local, ..self }
    }

    /// Every locker that connects without an address, `name:`, has a store of its own.
    #[must_use]
    pub const fn own_store(self) -> Self {
        Self { own_store: true, ..self }
    }

    /// Its URLs are those of other stores.
    pub(crate) const fn nodes(self) -> Self {
        Self { form: Form::Nodes, ..self }
    }

    /// Another server may take over: known from the URL, before the store says so.
    #[cfg(feature = "redis")]
    pub(crate) const fn fails_over(self) -> Self {
        Self { fails_over: true, ..self }
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// All options of its own.
    pub(crate) fn all_options(&self) -> impl Iterator<Item = &'static str> {
        self.options.iter().chain(self.place).chain(self.secrets).copied()
    }

    /// Whether the value of an option is read as it is, whatever stands in it.
    pub(crate) fn is_secret(&self, option: &str) -> bool {
        self.secrets.contains(&option)
    }

    /// Refuses a name that no URL can begin with, and options that mean something else, or two things.
    pub(crate) fn check(&self) -> Result<()> {
        let starts = self.name.starts_with(|c: char| c.is_ascii_lowercase());
        let rest = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
        if !starts || !self.name.chars().all(rest) {
            let allowed = "a lower-case letter, then those, digits, +, - and .";
            return Err(Error::config(format!("the URL scheme {:?}", self.name), "is no scheme", allowed));
        }
        let wrong = |option: &str, problem: &str, allowed: &str| {
            Err(Error::config(format!("the option {option:?} of {}:", self.name), problem, allowed))
        };
        for (n, option) in self.all_options().enumerate() {
            if COMMON.contains(&option) {
                return wrong(option, "is read for every scheme", "options of its own");
            }
            if self.all_options().take(n).any(|earlier| earlier == option) {
                return wrong(option, "is there twice", "each option once");
            }
            if option.is_empty() || !option.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
                return wrong(option, "is no option", "lower-case letters, digits and _");
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheme").field("name", &self.name).field("form", &self.form).finish_non_exhaustive()
    }
}
