//! Names, owners, tokens, durations, URLs and lease arithmetic, on any input.

use std::time::Duration;

use proptest::prelude::*;
use tenure::clock::{Drift, Instant, deadline};
use tenure::{Error, Locker, OwnerId, Resource, RetryPolicy, Token, duration};

fn connect(url: &str) -> Result<Locker, Error> {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(Locker::connect(url))
}

proptest! {
    #[test]
    fn a_name_is_1_to_512_bytes(name in "\\PC{0,400}|[\\x00-\\x7f]{0,600}") {
        let fits = (1..=512).contains(&name.len());
        match Resource::new(&name) {
            Ok(resource) => {
                prop_assert!(fits);
                prop_assert_eq!(resource.as_str(), &name);
            }
            Err(error) => {
                prop_assert!(!fits);
                prop_assert!(error.to_string().contains("1 to 512 bytes"));
                prop_assert!(error.to_string().len() < 400, "a refusal does not repeat all of it");
            }
        }
    }

    #[test]
    fn an_owner_is_read_as_it_is_written(a: u128, n in 0..=i64::MAX.cast_unsigned()) {
        let hex = format!("{a:032x}");
        let uuid = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
        let text = format!("{uuid}:{n}");
        let owner: OwnerId = text.parse().expect("an owner");
        prop_assert_eq!(owner.to_string(), text);
    }

    #[test]
    fn whatever_is_no_owner_is_refused(text in "\\PC{0,60}|[0-9a-f-]{30,40}:[0-9+]{0,25}") {
        if let Ok(owner) = text.parse::<OwnerId>() {
            prop_assert_eq!(owner.to_string(), text);
        }
    }

    #[test]
    fn a_token_is_larger_than_the_last_and_not_behind_the_clock(last: Option<u64>, now: u64) {
        let last = last.map(Token::new);
        match Token::after(last, now) {
            Some(token) => {
                prop_assert!(last.is_none_or(|last| token > last));
                prop_assert!(token.get() >= now);
                prop_assert!(i64::try_from(token.get()).is_ok());
            }
            None => prop_assert!(now > i64::MAX.cast_unsigned() || last.is_some_and(|l| l.get() >= i64::MAX.cast_unsigned())),
        }
    }

    #[test]
    fn a_token_is_read_as_it_is_written(n: u64, garbage in "\\PC{0,30}") {
        prop_assert_eq!(n.to_string().parse::<Token>().is_ok(), i64::try_from(n).is_ok());
        if let Ok(token) = garbage.parse::<Token>() {
            prop_assert!(token.get() <= i64::MAX.cast_unsigned());
        }
    }

    #[test]
    fn a_deadline_is_never_later_than_the_store_promised(sent: u64, millis in 0_u64..100_000_000, per_mille in 0_u32..2000, fixed in 0_u64..10_000) {
        let (sent, lease) = (Instant::from_nanos(sent), Duration::from_millis(millis));
        let drift = Drift { per_mille, fixed: Duration::from_millis(fixed) };
        let until = deadline(sent, lease, drift);
        prop_assert!(until >= sent);
        prop_assert!(until <= sent.after(lease));
        prop_assert!(until.since(sent) <= lease.saturating_sub(drift.allowance(lease)));
        // A larger allowance is never a later deadline.
        let more = Drift { per_mille: per_mille + 1, ..drift };
        prop_assert!(deadline(sent, lease, more) <= until);
    }

    #[test]
    fn instants_do_not_wrap(a: u64, nanos: u64) {
        let (at, d) = (Instant::from_nanos(a), Duration::from_nanos(nanos));
        prop_assert!(at.after(d) >= at);
        prop_assert!(at.before(d) <= at);
        prop_assert_eq!(at.since(at.after(d)), Duration::ZERO);
        prop_assert!(at.as_nanos() > 0, "zero means that a hold is over");
        prop_assert!(at.after(Duration::MAX) >= at);
    }

    #[test]
    fn a_duration_is_read_as_people_write_it(millis in 0_u64..10_000_000_000) {
        let exact = Duration::from_millis(millis);
        prop_assert_eq!(duration::parse(&format!("{millis}ms")).expect("read"), exact);
        prop_assert_eq!(duration::parse(&format!("{}.{:03}s", millis / 1000, millis % 1000)).expect("read"), exact);
        // What is shown can be typed, and is off by less than its second unit.
        let shown = duration::parse(&duration::show(exact)).expect("read");
        prop_assert!(shown <= exact);
        prop_assert!(exact - shown <= exact / 9, "{} for {exact:?}", duration::show(exact));
    }

    #[test]
    fn whatever_is_no_duration_is_refused(text in "\\PC{0,30}|[0-9.]{0,25}[a-z]{0,3}[0-9.]{0,9}[a-z]{0,2}") {
        match duration::parse(&text) {
            Ok(_) => prop_assert!(text.chars().any(|c| c.is_ascii_digit()) && text.chars().any(char::is_alphabetic)),
            Err(error) => prop_assert!(error.to_string().contains("1h30m")),
        }
    }

    #[test]
    fn whatever_is_no_url_is_refused_without_its_password(text in "\\PC{0,60}", option in "[a-z_]{1,12}", value in "[^&]{0,20}") {
        let secret = "canary5ecret";
        for url in [format!("{text}:{secret}"), format!("nosuch://user:{secret}@{text}"), format!("memory:?{option}={value}{secret}")] {
            match connect(&url) {
                Ok(_) => prop_assert!(url.starts_with("memory:")),
                Err(error) => prop_assert!(!format!("{error} {error:?}").contains(secret), "{url}: {error}"),
            }
        }
    }

    #[test]
    fn an_odd_lease_is_refused_with_the_range(millis in 0_u64..200_000_000) {
        let fits = (10..=86_400_000).contains(&millis);
        let opened = connect(&format!("memory:?lease={millis}ms"));
        prop_assert_eq!(opened.is_ok(), fits);
        if let Err(error) = opened {
            prop_assert!(error.to_string().contains("10ms to 24h"), "{}", error);
        }
    }
}

#[test]
fn a_policy_without_attempts_is_refused() {
    let none = RetryPolicy { attempts: 0, ..RetryPolicy::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let error = runtime.block_on(Locker::builder().retry(none).connect("memory:")).expect_err("refused");
    assert!(matches!(error, Error::Config { .. }));
}
