//! Places in the lines of fair locks, and what is heard of them: a release hands the lock to the first in line, and tells it its token.
//!
//! A grant that was told is a hold from the moment at which the store made it one, which nobody here knows. But it names the end of the
//! place that it was given for, and a place ends so long after the question that got it: what was sent before that is early enough to
//! count from. Whoever cannot count so asks again, and is granted the same.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::shared::lock;
use crate::clock::Instant;
use crate::name::Token;

/// Those who wait in line, by the channel of each.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: Mutex<HashMap<String, Place>>,
    /// How many grants wait to be taken, readable without the lock.
    grants: AtomicUsize,
}

#[derive(Debug)]
struct Place {
    /// Before the question was sent that got this place.
    asked: Instant,
    /// When it ends, as the server says it.
    ends: String,
    grant: Option<Grant>,
}

#[derive(Debug)]
struct Grant {
    token: Token,
    ends: String,
    /// Over which connection it came.
    session: u64,
}

/// What is said on the channel of a client to one of its owners.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Word<'a> {
    /// It is its turn to ask.
    Call { owner: &'a str },
    /// It has the lock, with this token, for the place that ends then.
    Grant { owner: &'a str, token: Token, ends: &'a str },
}

impl<'a> Word<'a> {
    pub(super) fn read(message: &'a str) -> Option<Self> {
        let mut words = message.split(' ');
        let (what, owner) = (words.next()?, words.next()?);
        let word = match what {
            "call" => Self::Call { owner },
            // Zero is below all tokens: a fence would let every later write in.
            "grant" => {
                let token = words.next()?.parse().ok().filter(|token: &Token| token.get() > 0)?;
                Self::Grant { owner, token, ends: words.next()? }
            }
            _ => return None,
        };
        words.next().is_none().then_some(word)
    }
}

impl Places {
    /// A question that was sent then has got, or kept, a place that ends then.
    pub(super) fn keep(&self, channel: &str, asked: Instant, ends: &str) {
        let mut places = lock(&self.places);
        match places.get_mut(channel) {
            // What was granted for it meanwhile stays.
            Some(place) => (place.asked, place.ends) = (asked, ends.to_owned()),
            None => drop(places.insert(channel.to_owned(), Place { asked, ends: ends.to_owned(), grant: None })),
        }
    }

    /// The lock was handed to one that waits here.
    pub(super) fn granted(&self, channel: &str, token: Token, ends: &str, session: u64) {
        let mut places = lock(&self.places);
        let Some(place) = places.get_mut(channel) else { return };
        if place.grant.replace(Grant { token, ends: ends.to_owned(), session }).is_none() {
            self.grants.fetch_add(1, Ordering::Release);
        }
    }

    pub(super) fn has_grants(&self) -> bool {
        self.grants.load(Ordering::Acquire) > 0
    }

    /// The token of a grant for the present place that came over this connection, and since when it counts.
    pub(super) fn take(&self, channel: &str, session: u64) -> Option<(Token, Instant)> {
        let mut places = lock(&self.places);
        let place = places.get_mut(channel)?;
        let grant = place.grant.take()?;
        self.grants.fetch_sub(1, Ordering::Release);
        (grant.session == session && grant.ends == place.ends).then_some((grant.token, place.asked))
    }

    /// Nobody waits there any more.
    pub(super) fn leave(&self, channel: &str) {
        let left = lock(&self.places).remove(channel);
        if left.is_some_and(|place| place.grant.is_some()) {
            self.grants.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_grant_counts_from_the_question_that_got_its_place() {
        let places = Places::default();
        places.keep("c", at(1), "100");
        places.keep("c", at(2), "200");
        places.granted("c", Token::new(7), "200", 1);
        assert!(places.has_grants());
        assert_eq!(places.take("c", 1), Some((Token::new(7), at(2))));
        assert_eq!(places.take("c", 1), None);
        assert!(!places.has_grants());
    }

    #[test]
    fn a_grant_for_another_place_or_over_another_connection_does_not_count() {
        let places = Places::default();
        places.keep("c", at(1), "100");
        places.granted("c", Token::new(7), "100", 1);
        places.keep("c", at(2), "200");
        assert_eq!(places.take("c", 1), None);
        places.granted("c", Token::new(8), "200", 1);
        assert_eq!(places.take("c", 2), None);
        places.granted("d", Token::new(9), "200", 1);
        assert!(!places.has_grants());
    }

    #[test]
    fn a_grant_that_nobody_takes_is_forgotten() {
        let places = Places::default();
        places.keep("c", at(1), "100");
        places.granted("c", Token::new(7), "100", 1);
        places.leave("c");
        assert!(!places.has_grants());
        assert_eq!(places.take("c", 1), None);
    }

    #[test]
    fn only_words_of_ours_are_read() {
        let grant = Word::Grant { owner: "3", token: Token::new(12), ends: "99" };
        assert_eq!(Word::read("grant 3 12 99"), Some(grant));
        assert_eq!(Word::read("call 3"), Some(Word::Call { owner: "3" }));
        for other in
            ["", "0", "1", "-5", "call", "grant 3", "grant 3 0 99", "grant 3 x 99", "grant 3 12 99 1", "call 3 4", "go 3"]
        {
            assert_eq!(Word::read(other), None, "{other}");
        }
    }
}
