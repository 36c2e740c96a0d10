//! Four threads of Java and four tasks of ours at once.

use tenure::Locker;

use super::java::{Case, name, url};
use super::kinds::Kind;
use super::place::Place;
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::peer::Actor;

/// For kinds that let one in at a time, on both sides.
pub(crate) const CASES: &[Case] = &[("a_mixed_crowd_loses_no_update", a_mixed_crowd_loses_no_update)];

const EACH: u64 = 250;

/// Four of Java and four of ours, two to a locker, count with a counter that only the lock protects.
fn a_mixed_crowd_loses_no_update(place: Place, kind: Kind) {
    let site = place.site();
    let java: Vec<Actor> = (0..4).map(|_| site.java.actor()).collect();
    let name = name(kind, "crowd", &java[0]);
    let counter = format!("{{{name}}}:counter");
    block_on(async {
        let url = url(site, kind, "10m");
        // With what wakes them: one that only asked again and again would not be through in time.
        let lockers = [connect(&format!("{url}&wake=tracking")).await, connect(&format!("{url}&wake=pubsub")).await];
        for actor in &java {
            actor.tell(&kind.tell("crowd", &name, &format!("{counter} {EACH}")));
        }
        let mut ours = tokio::task::JoinSet::new();
        for i in 0..4 {
            let raw = site.raw(&counter);
            ours.spawn(count(kind, lockers[i % 2].clone(), name.clone(), counter.clone(), raw));
        }
        while let Some(done) = must("all of ours have counted", ours.join_next()).await {
            done.expect("no panic");
        }
    });
    for actor in &java {
        assert_eq!(actor.answer(), EACH.to_string());
    }
    let counted: u64 = redis::cmd("GET").arg(&counter).query(&mut site.raw(&counter)).expect("counted");
    assert_eq!(counted, 8 * EACH);
}

async fn count(kind: Kind, locker: Locker, name: String, counter: String, mut raw: redis::Connection) {
    for _ in 0..EACH {
        let hold = (kind.take)(&locker, &name).await;
        let seen: Option<u64> = redis::cmd("GET").arg(&counter).query(&mut raw).expect("read");
        tokio::task::yield_now().await;
        redis::cmd("SET").arg(&counter).arg(seen.unwrap_or(0) + 1).query::<()>(&mut raw).expect("written");
        hold.check();
        hold.give().await;
    }
}
