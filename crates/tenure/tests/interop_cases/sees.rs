//! What each side's own API shows of the other's holds.

use tenure::backend::Mode;

use super::java::{Case, name, url};
use super::kinds::Kind;
use super::place::Place;
use tenure_testkit::locker::{block_on, connect};

pub(crate) const LOCKS: &[Case] =
    &[("java_sees_who_of_ours_holds", java_sees_who_of_ours_holds), ("we_see_who_of_java_holds", we_see_who_of_java_holds)];

fn java_sees_who_of_ours_holds(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "java_sees", &java);
    let ask = |verb: &str| java.ask(&format!("{verb} {} {name}", kind.ours));
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        assert_eq!(ask("locked"), "false");
        let hold = (kind.take)(&locker, &name).await;
        assert_eq!(ask("locked"), "true");
        assert_eq!(ask("held"), "false", "by others");
        let left: i64 = ask("ttl").parse().expect("a number");
        assert!((1..=600_000).contains(&left), "{left} ms");
        // Only the one is locked that we took.
        let other = ["read", "write"].into_iter().find(|other| kind.java != kind.ours && *other != kind.ours);
        if let Some(other) = other {
            assert_eq!(java.ask(&format!("locked {other} {name}")), "false");
        }
        hold.give().await;
        assert_eq!(ask("locked"), "false");
        assert_eq!(ask("ttl"), "-2");
    });
}

fn we_see_who_of_java_holds(place: Place, kind: Kind) {
    let site = place.site();
    let java = site.java.actor();
    let name = name(kind, "we_see", &java);
    block_on(async {
        let locker = connect(&url(site, kind, "10m")).await;
        java.ask(&kind.tell("take", &name, "lease=600000"));
        let state = locker.mutex(&name).inspect().await.expect("seen");
        let [holder] = &*state.holders else { panic!("one holds it: {state:?}") };
        let mode = match kind.java {
            "read" => Mode::Read,
            "write" => Mode::Write,
            _ => Mode::Exclusive,
        };
        assert_eq!((holder.mode, holder.token), (mode, None));
        assert!(holder.owner.parse::<tenure::OwnerId>().is_ok(), "{}", holder.owner);
        assert!(holder.expires_in.is_some_and(|left| left.as_secs() <= 600), "{holder:?}");
        assert!(locker.list(&name).await.expect("listed").iter().any(|s| s.resource == state.resource));
        java.ask(&kind.tell("give", &name, ""));
        assert!(locker.mutex(&name).inspect().await.expect("seen").holders.is_empty());
    });
}
