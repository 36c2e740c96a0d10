//! What a quorum relies on of its nodes: tokens from outside, and an identity. Below the engine, on stores that have a vote.

use super::{Peer, Subject, sure};
use crate::backend::{Attempt, Claim, Mode, Server, Voter};
use crate::name::Token;

/// Ahead of every clock, and far above the 2^53 that some stores can count to without rounding.
const FAR: Token = Token::new((1 << 60) + 1);

/// Two clients, if the store has a vote.
async fn two(s: &Subject) -> Option<(Peer, Peer)> {
    let (one, other) = (s.peer().await, s.peer().await);
    one.voter().is_some().then_some((one, other))
}

fn vote_of(peer: &Peer) -> &dyn Voter {
    peer.voter().expect("it has a vote")
}

/// Asks under a token from outside.
async fn granted(peer: &Peer, claim: &Claim, at_least: Token) -> Token {
    match sure(|| vote_of(peer).vote(claim, Some(at_least))).await {
        Attempt::Granted { token, .. } => token,
        other => panic!("{claim:?} was answered {other:?}"),
    }
}

fn after(token: Token, n: u64) -> Token {
    token.plus(n).expect("in range")
}

pub(super) async fn a_token_is_at_least_what_was_asked_for(s: Subject) {
    let Some((one, other)) = two(&s).await else { return };
    let blocks = one.backend.capabilities().token_blocks;
    for (name, mode) in [("a", Mode::Exclusive), ("b", Mode::Fair), ("c", Mode::Read), ("d", Mode::Write)] {
        if !one.backend.capabilities().modes.carry(mode) {
            continue;
        }
        let name = s.name(name);
        let grant = async |peer: &Peer, at_least: Token, tokens: u32| {
            let tokens = if blocks && mode != Mode::Fair { tokens } else { 1 };
            let claim = Claim { tokens, ..peer.wants(&name, mode) };
            let token = granted(peer, &claim, at_least).await;
            assert!(token >= at_least, "{token} is less than {at_least}");
            assert_eq!(granted(peer, &claim, at_least).await, token, "asking again is the same question");
            peer.release(&claim).await;
            (token, after(token, u64::from(tokens) - 1))
        };
        // One behind the clock: it does not count here, also where the store knows of no token.
        let (_, mut last) = grant(&one, Token::new(1), 1).await;
        for (at_least, tokens) in [(1, 1), (1, 3), (2, 1)] {
            let (first, top) = grant(&other, Token::new(at_least), tokens).await;
            assert_eq!(first, after(last, 1));
            last = top;
        }
        let far = after(last, 1_000_000_000).max(FAR);
        let (first, mut last) = grant(&one, far, 3).await;
        assert_eq!(first, far);
        // Within the last block, at its end, and behind it.
        for at_least in [far, last, after(last, 2), after(last, 5)] {
            let (first, top) = grant(&other, at_least, 3).await;
            assert_eq!(first, after(last, 1).max(at_least));
            last = top;
        }
        // Without one from outside it is the store's own business how much larger it is.
        let plain = other.granted(&other.wants(&name, mode)).await;
        assert!(plain > last, "{plain} after {last}");
    }
}

pub(super) async fn a_hold_that_goes_on_is_raised_to_a_larger_token(s: Subject) {
    let Some((one, other)) = two(&s).await else { return };
    let can = one.backend.capabilities();
    let modes = [Mode::Exclusive, Mode::Fair, Mode::Read, Mode::Write, Mode::Permits { take: 1, of: 1 }];
    for (number, mode) in modes.into_iter().enumerate() {
        // One behind and one ahead of what can be counted without rounding.
        for (tokens, ahead) in [(1, 1000), (3, 1000), (3, FAR.get())] {
            let single = matches!(mode, Mode::Fair | Mode::Permits { .. });
            if !can.modes.carry(mode) || tokens > 1 && (single || !can.token_blocks) {
                continue;
            }
            let name = s.name(&format!("{number}:{tokens}:{ahead}"));
            let held = Claim { tokens, ..one.wants(&name, mode) };
            let token = one.granted(&held).await;
            let more = after(token, ahead);
            assert_eq!(granted(&one, &held, more).await, more);
            // By as little as can be.
            let more = after(more, 1);
            assert_eq!(granted(&one, &held, more).await, more);
            // Neither the same question again, nor a smaller one or none, changes it.
            for at_least in [more, token] {
                assert_eq!(granted(&one, &held, at_least).await, more);
            }
            assert_eq!(one.granted(&held).await, more);
            let last = after(more, u64::from(tokens) - 1);
            let state = other.state(&name).await;
            assert_eq!(state.holders[0].token, Some(last));
            assert!(state.fence >= Some(last), "{:?}", state.fence);
            assert!(one.renews(&held).await);
            one.release(&held).await;
            let next = granted(&other, &other.wants(&name, mode), Token::new(1)).await;
            assert_eq!(next, after(last, 1));
        }
    }
}

pub(super) async fn raising_one_of_many_takes_no_token_back(s: Subject) {
    let Some((one, other)) = two(&s).await else { return };
    if !one.backend.capabilities().modes.carry(Mode::Read) {
        return;
    }
    let name = s.name("a");
    let (first, second) = (one.wants(&name, Mode::Read), other.wants(&name, Mode::Read));
    let low = granted(&one, &first, Token::new(1)).await;
    let high = granted(&other, &second, after(low, 1000)).await;
    assert_eq!(granted(&one, &first, after(low, 500)).await, after(low, 500));
    assert_eq!(other.granted(&second).await, high);
    let third = granted(&one, &one.wants(&name, Mode::Read), Token::new(1)).await;
    assert_eq!(third, after(high, 1));

    let name = s.name("b");
    let write = one.wants(&name, Mode::Write);
    let token = one.granted(&write).await;
    let downgrade = Claim { mode: Mode::Downgrade, ..write };
    let raised = after(token, 1_000_000_000);
    assert_eq!(granted(&one, &downgrade, raised).await, raised);
    assert_eq!(one.granted(&downgrade).await, raised);
    assert_eq!(granted(&other, &other.wants(&name, Mode::Read), Token::new(1)).await, after(raised, 1));
}

pub(super) async fn a_break_raises_the_fence_also_where_nobody_holds(s: Subject) {
    // Without faults: a break whose answer is lost raises the fence twice.
    let (one, other) = (s.peer().await, s.peer_with(None).await);
    let Some(voter) = other.voter() else { return };
    let name = s.name("a");
    let held = one.claim(&name);
    let token = one.granted(&held).await;
    let ahead = after(token, 1_000_000_000);
    let broken = sure(|| voter.break_above(&name, ahead)).await.expect("it was held");
    assert_eq!(broken.holders.len(), 1);
    assert_eq!(broken.fence, ahead);
    assert!(!one.renews(&held).await);
    for (at_least, fence) in [(Token::new(1), after(ahead, 1)), (after(ahead, 500), after(ahead, 500))] {
        assert_eq!(sure(|| voter.break_above(&name, at_least)).await, None);
        assert!(other.state(&name).await.fence >= Some(fence));
    }
    let next = one.claim(&name);
    let token = granted(&one, &next, Token::new(1)).await;
    assert_eq!(token, after(ahead, 501));
    let broken = sure(|| voter.break_above(&name, Token::new(1))).await.expect("it was held");
    assert_eq!(broken.fence, after(token, 1));

    // Where it was never held.
    let name = s.name("b");
    let ahead = after(broken.fence, 1_000_000_000).max(FAR);
    assert_eq!(sure(|| voter.break_above(&name, ahead)).await, None);
    assert_eq!(granted(&one, &one.claim(&name), Token::new(1)).await, after(ahead, 1));
}

pub(super) async fn an_identification_tells_who_answers(s: Subject) {
    let Some((one, other)) = two(&s).await else { return };
    let (short, long) = (s.lease(), s.lease() * 3);
    let identify = async |peer: &Peer, longest| sure(|| vote_of(peer).identify(longest)).await;
    let first = identify(&one, short).await;
    let longest = |server: &Server| server.leases.iter().map(|in_use| in_use.lease).max().unwrap_or_default();
    assert!(longest(&first) >= short && !first.id.is_empty() && !first.replica, "{first:?}");
    // Of this century.
    assert!(first.clock_micros > 946_684_800_000_000, "{first:?}");
    let second = identify(&other, long).await;
    assert_eq!((&second.id, longest(&second) >= long), (&first.id, true), "{second:?}");
    let for_long = |server: &Server, lease| server.leases.iter().find(|one| one.lease == lease).map(|one| one.for_long);
    for (peer, lease) in [(&one, short), (&other, short), (&one, long)] {
        let again = identify(peer, lease).await;
        assert_eq!((&again.id, longest(&again)), (&first.id, longest(&second)));
        assert!(for_long(&again, short) >= for_long(&again, long), "the shorter one came first: {again:?}");
        assert!(for_long(&again, long) >= for_long(&second, long), "{again:?} after {second:?}");
        assert!(again.up >= first.up && again.clock_micros >= first.clock_micros, "{again:?} after {first:?}");
        // Zero where there are several connections, or none.
        let connection = vote_of(peer).connection();
        assert!(connection == 0 || connection == again.connection, "{again:?} over connection {connection}");
    }
}
