//! What those rely on who make one lock of several stores: tokens from outside, and who answers. Below the engine.

use super::claims::renew;
use super::{Peer, Subject, sure};
use crate::backend::{Claim, Mode, Server};
use crate::name::Token;

/// Ahead of every clock, and far above the 2^53 that some stores can count to without rounding.
const FAR: Token = Token::new((1 << 60) + 1);

fn asks(claim: &Claim, at_least: Token) -> Claim {
    Claim { at_least: Some(at_least), ..claim.clone() }
}

fn after(token: Token, n: u64) -> Token {
    token.plus(n).expect("in range")
}

/// A store that is made of several has a rule of its own for how much larger a token is.
fn is(peer: &Peer, token: Token, expected: Token) {
    let several = !peer.backend.members().is_empty();
    assert!(token == expected || several && token > expected, "{token} where {expected} was expected");
}

pub(super) async fn a_token_is_at_least_what_was_asked_for(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    let blocks = one.backend.capabilities().token_blocks;
    for (name, mode) in [("a", Mode::Exclusive), ("b", Mode::Fair), ("c", Mode::Read), ("d", Mode::Write)] {
        if !one.backend.capabilities().modes.carry(mode) {
            continue;
        }
        let name = s.name(name);
        let grant = async |peer: &Peer, at_least: Token, tokens: u32| {
            let tokens = if blocks && mode != Mode::Fair { tokens } else { 1 };
            let claim = Claim { tokens, ..asks(&peer.wants(&name, mode), at_least) };
            let token = peer.granted(&claim).await;
            assert!(token >= at_least, "{token} is less than {at_least}");
            assert_eq!(peer.granted(&claim).await, token, "asking again is the same question");
            peer.release(&claim).await;
            (token, after(token, u64::from(tokens) - 1))
        };
        // One behind the clock: it does not count here, also where the store knows of no token.
        let (_, mut last) = grant(&one, Token::new(1), 1).await;
        for (at_least, tokens) in [(1, 1), (1, 3), (2, 1)] {
            let (first, top) = grant(&other, Token::new(at_least), tokens).await;
            is(&one, first, after(last, 1));
            last = top;
        }
        let far = after(last, 1_000_000_000).max(FAR);
        let (first, mut last) = grant(&one, far, 3).await;
        is(&one, first, far);
        // Within the last block, at its end, and behind it.
        for at_least in [far, last, after(last, 2), after(last, 5)] {
            let (first, top) = grant(&other, at_least, 3).await;
            is(&one, first, after(last, 1).max(at_least));
            last = top;
        }
        let plain = other.wants(&name, mode);
        is(&one, other.granted(&plain).await, after(last, 1));
    }
}

pub(super) async fn a_hold_that_goes_on_is_raised_to_a_larger_token(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
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
            is(&one, one.granted(&asks(&held, more)).await, more);
            // By as little as can be.
            let more = after(more, 1);
            is(&one, one.granted(&asks(&held, more)).await, more);
            // Neither the same question again, nor a smaller one or none, changes it.
            for at_least in [Some(more), Some(token), None] {
                is(&one, one.granted(&Claim { at_least, ..held.clone() }).await, more);
            }
            let last = after(more, u64::from(tokens) - 1);
            let state = other.state(&name).await;
            is(&one, state.holders[0].token.expect("known"), last);
            assert!(state.fence >= Some(last), "{:?}", state.fence);
            assert_eq!(renew(&one, std::slice::from_ref(&held)).await, [true]);
            one.release(&held).await;
            let next = other.granted(&asks(&other.wants(&name, mode), Token::new(1))).await;
            is(&one, next, after(last, 1));
        }
    }
}

pub(super) async fn raising_one_of_many_takes_no_token_back(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    if !one.backend.capabilities().modes.carry(Mode::Read) {
        return;
    }
    let name = s.name("a");
    let (first, second) = (one.wants(&name, Mode::Read), other.wants(&name, Mode::Read));
    let low = one.granted(&asks(&first, Token::new(1))).await;
    let high = other.granted(&asks(&second, after(low, 1000))).await;
    is(&one, one.granted(&asks(&first, after(low, 500))).await, after(low, 500));
    is(&one, other.granted(&second).await, high);
    let third = one.granted(&asks(&one.wants(&name, Mode::Read), Token::new(1))).await;
    is(&one, third, after(high, 1));

    let name = s.name("b");
    let write = one.wants(&name, Mode::Write);
    let token = one.granted(&write).await;
    let downgrade = Claim { mode: Mode::Downgrade, ..write };
    let raised = after(token, 1_000_000_000);
    is(&one, one.granted(&asks(&downgrade, raised)).await, raised);
    is(&one, one.granted(&downgrade).await, raised);
    is(&one, other.granted(&asks(&other.wants(&name, Mode::Read), Token::new(1))).await, after(raised, 1));
}

pub(super) async fn a_break_raises_the_fence_also_where_nobody_holds(s: Subject) {
    // Without faults: a break whose answer is lost raises the fence twice.
    let (one, other) = (s.peer().await, s.peer_with(None).await);
    let name = s.name("a");
    let held = one.claim(&name);
    let token = one.granted(&held).await;
    let ahead = after(token, 1_000_000_000);
    let broken = sure(|| other.backend.break_hold(&name, Some(ahead))).await.expect("it was held");
    assert_eq!(broken.holders.len(), 1);
    is(&one, broken.fence, ahead);
    assert_eq!(renew(&one, &[held]).await, [false]);
    for (at_least, fence) in [(Token::new(1), after(ahead, 1)), (after(ahead, 500), after(ahead, 500))] {
        assert_eq!(sure(|| other.backend.break_hold(&name, Some(at_least))).await, None);
        assert!(other.state(&name).await.fence >= Some(fence));
    }
    let next = one.claim(&name);
    let token = one.granted(&asks(&next, Token::new(1))).await;
    is(&one, token, after(ahead, 501));
    let broken = sure(|| other.backend.break_hold(&name, Some(Token::new(1)))).await.expect("it was held");
    is(&one, broken.fence, after(token, 1));

    // Where nobody ever did.
    let name = s.name("b");
    let ahead = after(broken.fence, 1_000_000_000).max(FAR);
    assert_eq!(sure(|| other.backend.break_hold(&name, Some(ahead))).await, None);
    is(&one, one.granted(&one.claim(&name)).await, after(ahead, 1));
}

pub(super) async fn an_introduction_tells_who_answers(s: Subject) {
    let (one, other) = (s.peer().await, s.peer().await);
    if !one.backend.members().is_empty() {
        // It is not one of several, but several.
        return;
    }
    let (short, long) = (s.lease(), s.lease() * 3);
    let introduce = async |peer: &Peer, longest| sure(|| peer.backend.introduce(longest)).await;
    let first = introduce(&one, short).await;
    let longest = |server: &Server| server.leases.iter().map(|in_use| in_use.lease).max().unwrap_or_default();
    assert!(longest(&first) >= short && !first.id.is_empty() && !first.replica, "{first:?}");
    // Of this century.
    assert!(first.clock_micros > 946_684_800_000_000, "{first:?}");
    let second = introduce(&other, long).await;
    assert_eq!((&second.id, longest(&second) >= long), (&first.id, true), "{second:?}");
    let for_long = |server: &Server, lease| server.leases.iter().find(|one| one.lease == lease).map(|one| one.for_long);
    for (peer, lease) in [(&one, short), (&other, short), (&one, long)] {
        let again = introduce(peer, lease).await;
        assert_eq!((&again.id, longest(&again)), (&first.id, longest(&second)));
        assert!(for_long(&again, short) >= for_long(&again, long), "the shorter one came first: {again:?}");
        assert!(for_long(&again, long) >= for_long(&second, long), "{again:?} after {second:?}");
        assert!(again.up >= first.up && again.clock_micros >= first.clock_micros, "{again:?} after {first:?}");
        // Zero where there are several connections, or none.
        let session = peer.backend.session();
        assert!(session == 0 || session == again.session, "{again:?} in session {session}");
    }
}
