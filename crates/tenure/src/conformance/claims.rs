//! What a backend answers to claims, below the engine.

use std::collections::HashSet;
use std::time::SystemTime;

use super::{Subject, sure, sure_or_refused};
use crate::backend::{Attempt, Claim, Queue, Released, Scope};
use crate::error::Error;
use crate::name::Resource;

pub(super) async fn a_free_lock_is_granted(s: Subject) {
    let peer = s.peer().await;
    let claim = peer.hold(peer.claim(&s.name("a"))).await;
    peer.release(&claim).await;
}

pub(super) async fn a_held_lock_is_busy_for_others(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    one.granted(&one.claim(&s.name("a"))).await;
    other.busy(&other.claim(&s.name("a"))).await;
    // Another hold of the same client is another owner too.
    one.busy(&one.claim(&s.name("a"))).await;
    other.granted(&other.claim(&s.name("b"))).await;
}

pub(super) async fn a_retry_keeps_its_token(s: Subject) {
    let peer = s.peer().await;
    let most = if peer.backend.capabilities().token_blocks { 5 } else { 1 };
    for tokens in [1, most] {
        let claim = Claim { tokens, ..peer.claim(&s.name(&format!("{tokens}"))) };
        let token = peer.granted(&claim).await;
        assert_eq!(peer.granted(&claim).await, token);
        assert_eq!(peer.granted(&claim).await, token);
        peer.release(&claim).await;
    }
}

pub(super) async fn never_leaves_no_queue_position(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let name = s.name("a");
    one.granted(&one.claim(&name)).await;
    other.busy(&Claim { queue: Queue::Never, ..other.claim(&name) }).await;
    assert!(matches!(one.state(&name).await.waiting, None | Some(0)));
}

pub(super) async fn a_release_frees_the_lock(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let held = one.hold(one.claim(&s.name("a"))).await;
    one.release(&held).await;
    other.granted(&other.claim(&s.name("a"))).await;
}

pub(super) async fn releasing_twice_is_not_an_error(s: Subject) {
    let peer = s.peer().await;
    let held = peer.hold(peer.claim(&s.name("a"))).await;
    peer.release(&held).await;
    assert_eq!(sure(|| peer.backend.release(&held)).await, Released::NotHeld);
    let never_held = peer.claim(&s.name("b"));
    assert_eq!(sure(|| peer.backend.release(&never_held)).await, Released::NotHeld);
}

pub(super) async fn a_stranger_cannot_release(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let held = one.hold(one.claim(&s.name("a"))).await;
    let strange = other.claim(&s.name("a"));
    assert_eq!(sure(|| other.backend.release(&strange)).await, Released::NotHeld);
    other.busy(&other.claim(&s.name("a"))).await;
    assert!(one.renews(&held).await);
}

pub(super) async fn a_lapsed_hold_is_gone_and_is_not_made_again(s: Subject) {
    let peer = s.peer().await;
    let held = peer.hold(peer.claim(&s.name("a"))).await;
    tokio::time::sleep(s.lease() + s.lease() / 10).await;
    assert!(!peer.renews(&held).await);
    assert!(peer.state(&s.name("a")).await.holders.is_empty());
}

pub(super) async fn a_late_release_leaves_the_next_holder_alone(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let late = one.hold(one.claim(&s.name("a"))).await;
    tokio::time::sleep(s.lease() + s.lease() / 10).await;
    let next = other.hold(other.claim(&s.name("a"))).await;
    assert_eq!(sure(|| one.backend.release(&late)).await, Released::NotHeld);
    assert!(other.renews(&next).await);
}

pub(super) async fn renewal_extends_a_hold(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let held = one.hold(one.claim(&s.name("a"))).await;
    for _ in 0..4 {
        tokio::time::sleep(s.lease() / 2).await;
        assert!(one.renews(&held).await);
    }
    other.busy(&other.claim(&s.name("a"))).await;
}

pub(super) async fn renewals_are_answered_in_order(s: Subject) {
    let peer = s.peer().await;
    let claims: Vec<Claim> = (0..7).map(|i| peer.claim(&s.name(&format!("n{i}")))).collect();
    let noted = |i: usize| Claim { note: Some("a note".into()), ..claims[i].clone() };
    let claims = [claims[0].clone(), noted(1), claims[2].clone(), noted(3), claims[4].clone()];
    for held in [1, 2, 4] {
        peer.granted(&claims[held]).await;
    }
    assert_eq!(peer.renew(&claims).await, [false, true, true, false, true]);
    assert!(peer.renew(&[]).await.is_empty());
}

pub(super) async fn tokens_grow_in_grant_order(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let name = s.name("a");
    let mut last = None;
    for peer in [&one, &other, &other, &one].into_iter().cycle().take(40) {
        let claim = peer.claim(&name);
        let token = peer.granted(&claim).await;
        assert!(Some(token) > last, "{token} after {last:?}");
        last = Some(token);
        peer.release(&claim).await;
    }
}

pub(super) async fn a_block_of_tokens_is_skipped_by_the_next_grant(s: Subject) {
    let peer = s.peer().await;
    if !peer.backend.capabilities().token_blocks {
        return;
    }
    let first = Claim { tokens: 1000, ..peer.claim(&s.name("a")) };
    let token = peer.granted(&first).await;
    peer.release(&first).await;
    let next = peer.granted(&peer.claim(&s.name("a"))).await;
    assert!(next > token.plus(999).expect("in range"), "{next} is within the block that starts at {token}");
}

pub(super) async fn a_release_fires_the_signal(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let held = one.hold(one.claim(&s.name("a"))).await;
    let waiting = other.claim(&s.name("a"));
    let mut signal = sure(|| other.backend.watch(&waiting)).await;
    other.busy(&waiting).await;
    one.release(&held).await;
    tokio::time::timeout(s.lease() / 2, signal.fired()).await.expect("fired before the lease could end");
    other.granted(&waiting).await;
}

pub(super) async fn a_break_ends_the_hold_and_raises_the_fence(s: Subject) {
    let (one, other) = (s.peer().await, s.peer_with(None).await);
    let held = one.claim(&s.name("a"));
    let token = one.granted(&held).await;
    let name = s.name("a");
    let broken = sure(|| other.backend.break_hold(&name)).await.expect("it was held");
    assert_eq!(broken.holders.len(), 1);
    assert_eq!(broken.holders[0].owner, held.owner.to_string());
    assert!(broken.fence > token);
    assert!(!one.renews(&held).await);
    let next = other.granted(&other.claim(&s.name("a"))).await;
    assert!(next > broken.fence);
}

pub(super) async fn breaking_a_free_lock_breaks_nothing(s: Subject) {
    let peer = s.peer().await;
    let name = s.name("a");
    assert_eq!(sure(|| peer.backend.break_hold(&name)).await, None);
}

pub(super) async fn inspect_shows_holder_token_note_and_time_left(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let name = s.name("a");
    assert!(other.state(&name).await.holders.is_empty());
    let noted = Claim { note: Some("nightly backup, ünïcode".into()), ..one.claim(&name) };
    let unnoted = one.claim(&s.name("b"));
    let token = one.granted(&noted).await;
    one.granted(&unnoted).await;

    let state = other.state(&name).await;
    let holder = &state.holders[0];
    assert_eq!((state.holders.len(), &*holder.owner), (1, &*noted.owner.to_string()));
    assert_eq!(holder.token, Some(token));
    assert!(state.fence >= Some(token), "{:?}", state.fence);
    assert_eq!(holder.note.as_deref(), Some("nightly backup, ünïcode"));
    assert!(holder.expires_in.is_some_and(|left| left <= s.lease()));
    // A store need not keep it.
    assert!(holder.since.is_none_or(|since| since <= SystemTime::now() + s.lease()));

    let about = other.state(&s.name("b")).await.holders.remove(0).note.expect("what the client says of itself");
    assert_eq!(about, format!("about {}", one.owners.client()));
}

pub(super) async fn inspect_lists_held_names_under_a_literal_prefix(s: Subject) {
    let peer = s.peer().await;
    let held = ["job%_*?[x]:1", "job%_*?[x]:2", "job:3", "other"];
    for name in held {
        peer.granted(&peer.claim(&s.name(name))).await;
    }
    let given_back = peer.hold(peer.claim(&s.name("job%_*?[x]:free"))).await;
    peer.release(&given_back).await;
    let list = async |prefix: &str| -> Vec<Resource> {
        let states = sure(|| peer.backend.inspect(Scope::Prefix(prefix))).await;
        states.into_iter().map(|state| state.resource).collect()
    };
    assert_eq!(list(s.name("job%_*?[x]:").as_str()).await, [s.name(held[0]), s.name(held[1])]);
    assert_eq!(list(s.name("job").as_str()).await.len(), 3);
    assert!(list(s.name("nothing").as_str()).await.is_empty());
}

pub(super) async fn names_of_all_kinds_are_kept_apart(s: Subject) {
    let peer = s.peer().await;
    let long = s.longest_name();
    let names = [
        "a",
        "a:f",
        "{a}",
        "{a}b",
        "a}b",
        "a{b",
        "{}x",
        "\0",
        "\r\n",
        " ",
        "ä",
        "a\u{301}",
        "🔒",
        "A",
        "'; DROP TABLE locks",
        &long,
    ];
    let has_parts = peer.backend.partition(&s.name("a")) != peer.backend.partition(&s.name("b"));
    let mut claims = Vec::new();
    for name in names {
        let claim = peer.claim(&s.name(name));
        match sure_or_refused(|| peer.backend.acquire(&claim)).await {
            Ok(answer) => assert!(matches!(answer, Attempt::Granted { .. }), "{name:?} was answered {answer:?}"),
            // Where braces choose the server, those that do not are refused, and in all verbs alike.
            Err(Error::Config { .. }) if has_parts && name.contains(['{', '}']) => {
                peer.backend.inspect(Scope::One(&claim.resource)).await.expect_err("refused");
                continue;
            }
            Err(e) => panic!("{name:?}: {e}"),
        }
        // Seen at once: on a slow store the first lease may end before the last name has its turn.
        assert_eq!(peer.state(&claim.resource).await.holders[0].owner, claim.owner.to_string(), "{name:?}");
        claims.push(claim);
        // Unknown is no answer here: what counts is the last one.
        drop(peer.renew(&claims).await);
    }
    assert!(claims.len() >= names.len() - 3);
    assert_eq!(claims.iter().map(|c| &c.resource).collect::<HashSet<_>>().len(), claims.len());
    assert!(peer.renew(&claims).await.into_iter().all(|held| held));
    for claim in &claims {
        peer.release(claim).await;
        assert!(peer.state(&claim.resource).await.holders.is_empty());
    }
}

pub(super) async fn a_given_up_claim_leaves_nothing(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let name = s.name("a");
    let held = one.hold(one.claim(&name)).await;
    let given_up = other.claim(&name);
    other.busy(&given_up).await;
    other.release(&given_up).await;
    assert!(matches!(one.state(&name).await.waiting, None | Some(0)));
    one.release(&held).await;
    one.granted(&one.claim(&name)).await;
}
