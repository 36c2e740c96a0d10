//! The options after the `?` of a URL.

use std::fmt;
use std::time::Duration;

use super::{Scheme, decode};
use crate::duration;
use crate::error::{Error, Result};

/// What every URL takes.
pub(crate) const COMMON: [&str; 4] = ["lease", "timeout", "prefix", "linger"];

/// The options of one URL. Values may be secrets: they are in no `Debug` and no error.
#[derive(Default)]
pub struct Options(Vec<(&'static str, String)>);

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

/// The name of an option.
pub(crate) fn key(pair: &str) -> &str {
    pair.split_once('=').map_or(pair, |(key, _)| key)
}

impl Options {
    pub(crate) fn parse(query: &str, scheme: &Scheme) -> Result<Self> {
        let known = || COMMON.into_iter().chain(scheme.all_options());
        let allowed = || known().collect::<Vec<_>>().join(", ");
        let mut options: Vec<(&'static str, String)> = Vec::new();
        for (n, pair) in query.split('&').filter(|p| !p.is_empty()).enumerate() {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(key) = known().find(|known| *known == key) else {
                let asked = format!("the {} option of {}:", ordinal(n), scheme.name);
                return Err(Error::config(asked, "is unknown", allowed()));
            };
            let asked = || format!("the option {key:?} of {}:", scheme.name);
            if options.iter().any(|(k, _)| *k == key) {
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

    /// The value of an option, percent-decoded, if the URL has it. It is never empty.
    pub fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(k, _)| *k == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// The first of the options that every URL takes.
    pub(crate) fn first_common(&self) -> Option<&'static str> {
        self.0.iter().map(|(key, _)| *key).find(|key| COMMON.contains(key))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| *k == name).map(|(_, value)| &**value)
    }

    /// An option that takes one of a few words, and what each of them means.
    pub fn one_of<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Result<Option<T>> {
        let Some(given) = self.take(name) else { return Ok(None) };
        let known = words.iter().find(|(word, _)| *word == given).map(|(_, meaning)| *meaning);
        let allowed = || words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
        known.map(Some).ok_or_else(|| Error::config(format!("the option {name:?}"), "has a value that is unknown", allowed()))
    }

    /// An option that takes a duration, as `lease` does.
    pub fn duration(&mut self, name: &str) -> Result<Option<Duration>> {
        self.take(name).map(|text| duration::parse(&text)).transpose().map_err(|e| of_option(name, e))
    }
}

/// An error about the value of an option, without that.
pub(crate) fn of_option(name: &str, error: Error) -> Error {
    match error {
        Error::Config(e) => Error::config(format!("the option {name:?}"), e.problem, e.allowed),
        other => other,
    }
}

/// Which one of several, from zero on.
fn ordinal(n: usize) -> String {
    let words = ["first", "second", "third", "fourth", "fifth", "sixth"];
    words.get(n).map_or_else(|| format!("{}th", n + 1), |word| (*word).to_owned())
}
