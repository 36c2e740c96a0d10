//! Durations, and the names of locks, owners, tokens and work.

use std::time::Duration;

use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::{Error, Invalid, duration};

/// What is read is written so that it is read as the same, up to what is too fine to be shown.
pub(super) fn durations(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let read = match duration::parse(text) {
        Ok(read) => read,
        Err(error) => return explained(&error),
    };
    let shown = duration::show(read);
    let again = duration::parse(&shown).expect("what is shown can be read");
    assert!(again <= read, "{text:?} is shown as {shown}, which is longer");
    assert!(read - again <= (read / 10).max(Duration::from_nanos(1)), "{text:?} is shown as {shown}");
    assert_eq!(duration::show(again), shown);
}

pub(super) fn names(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Resource::new(text) {
        Ok(name) => assert_eq!(name.as_str(), text),
        Err(error) => explained(&error.into()),
    }
    // One spelling each: what differs in its text is another one.
    match text.parse::<ClientId>() {
        Ok(client) => assert_eq!(client.to_string(), text),
        Err(error) => explained(&error.into()),
    }
    match text.parse::<OwnerId>() {
        Ok(owner) => assert!(owner.to_string() == text && i64::try_from(owner.number).is_ok()),
        Err(error) => explained(&error.into()),
    }
    match text.parse::<Token>() {
        Ok(token) => {
            assert!(i64::try_from(token.get()).is_ok(), "{text:?} is a token of 64 bits");
            assert_eq!(token.to_string().parse::<Token>().expect("a token"), token);
            assert!(token.plus(1).is_none_or(|next| next > token));
        }
        Err(error) => explained(&error.into()),
    }
    #[cfg(feature = "once")]
    match crate::once::Key::new(text) {
        Ok(key) => assert_eq!(Resource::new(key.lock()).expect("its lock has a name").as_str(), format!("once:{text}")),
        Err(error) => explained(&error),
    }
}

/// A refusal says what was asked and what is allowed.
fn explained(error: &Error) {
    let Error::Config(Invalid { asked, problem, allowed }) = error else { panic!("{error:?} is no refusal") };
    assert!(!asked.is_empty() && !problem.is_empty() && !allowed.is_empty(), "{error:?}");
}
