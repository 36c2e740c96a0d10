//! Every verb of the store against a server with arbitrary answers.

use std::time::Duration;

use super::server::{Socket, at, dial, run};
use crate::backend::{Attempt, Claim, Client, Mode, Queue, Renewal, Retry, Scope, State, Voter};
use crate::backends::redis::SCHEMES;
use crate::backends::redis::sentinel::Sentinels;
use crate::clock::{Clock, Drift};
use crate::error::Result;
use crate::name::{ClientId, OwnerId, Resource, Token};
use crate::secret::CANARY;
use crate::store::{Context, Registry, Target};

const LEASE: Duration = Duration::from_secs(30);
/// Much longer than anything takes here.
const TIMEOUT: Duration = Duration::from_secs(3);

const MODES: [Mode; 12] = [
    Mode::Exclusive,
    Mode::Fair,
    Mode::Read,
    Mode::Write,
    Mode::Downgrade,
    Mode::Permits { take: 2, of: 3 },
    Mode::Permits { take: 1, of: 0 },
    Mode::Resize { of: 4 },
    Mode::SetCount { of: 2 },
    Mode::CountDown,
    Mode::CountZero,
    Mode::RemoveCount,
];

/// The first byte is the verb, the second the mode, the third the options; then the answers.
pub(crate) fn replies(data: &[u8]) {
    let [verb, mode, flags, script @ ..] = data else { return };
    let (mode, flag) = (MODES[usize::from(*mode) % MODES.len()], |bit: u8| flags >> bit & 1 == 1);
    run(async {
        let socket = Socket::new();
        let url = format!(
            "//{}?user=u&pass={CANARY}{}{}{}{}",
            socket.path.display(),
            if flag(0) { "&layout=plain" } else { "" },
            if flag(1) { "&wake=pubsub" } else { "" },
            if flag(2) { "&semaphore=counter" } else { "" },
            if flag(3) { "&sync=1" } else { "" },
        );
        let asks = async {
            let unix = SCHEMES.iter().find(|scheme| scheme.name == "redis+unix").expect("a scheme");
            let target = Target::read(unix, &url).expect("a good URL");
            let store = (unix.open)(target.address, context()).await?;
            let shown = format!("{store:?}");
            assert!(!shown.contains(CANARY), "{shown}");
            let store = store.voter().expect("one server has a vote");
            ask(&**store, *verb, mode, flag(4), flag(5)).await
        };
        let outcome = tokio::select! {
            outcome = tokio::time::timeout(2 * TIMEOUT, asks) => outcome.expect("a verb ends when its server has gone"),
            () = socket.serve(script, flag(7)) => unreachable!("it serves for ever"),
        };
        if let Err(error) = outcome {
            let shown = format!("{error} {error:?}");
            assert!(contains_secret(script) || !shown.contains(CANARY), "{shown}");
        }
    });
}

/// What a server knows it may say.
fn contains_secret(script: &[u8]) -> bool {
    script.windows(CANARY.len()).any(|window| window == CANARY.as_bytes())
}

fn context() -> Context {
    let client = Client { id: client_id(), about: "fuzz".into() };
    let (clock, drift, prefix, registry) = (Clock::system(), Drift::DEFAULT, String::new(), Registry::NONE);
    Context { client, clock, timeout: TIMEOUT, lease: LEASE, drift, prefix, registry }
}

fn client_id() -> ClientId {
    "1b4e28ba-2fa1-4d2a-883f-0016d3cca427".parse().expect("an id")
}

fn claim(name: &str, mode: Mode, noted: bool, several: bool) -> Claim {
    Claim {
        resource: Resource::new(name).expect("a name"),
        owner: OwnerId { client: client_id(), number: 1 },
        mode,
        queue: if several { Queue::Allowed } else { Queue::Never },
        lease: LEASE,
        tokens: if several && mode == Mode::Exclusive { 16 } else { 1 },
        note: noted.then(|| "note".into()),
    }
}

async fn ask(store: &dyn Voter, verb: u8, mode: Mode, noted: bool, several: bool) -> Result<()> {
    let claim = claim("L", mode, noted, several);
    let at_least = noted.then(|| Token::new(1 << 50));
    match verb % 8 {
        0 => granted(&claim, &store.vote(&claim, at_least).await?),
        1 => {
            let _listens = store.watch(&claim).await?;
            granted(&claim, &store.vote(&claim, at_least).await?);
        }
        2 => {
            let claims: Vec<Claim> = [Mode::Exclusive, mode, Mode::Read, Mode::Exclusive]
                .into_iter()
                .filter(|mode| mode.holds())
                .map(|mode| Claim { mode, ..claim.clone() })
                .collect();
            let renewed = store.renew(&claims).await?;
            assert_eq!(renewed.len(), claims.len(), "an answer for each claim");
            let whole = |renewal: &Renewal| !matches!(renewal, Renewal::Extended { valid_for } if *valid_for != LEASE);
            assert!(renewed.iter().all(whole), "{renewed:?}");
        }
        3 => drop(store.release(&claim).await?),
        4 => {
            let states = store.inspect(Scope::One(&claim.resource)).await?;
            assert!(states.len() == 1 && states[0].resource == claim.resource, "{states:?}");
            described(&states);
        }
        5 => {
            let states = store.inspect(Scope::Prefix("L")).await?;
            assert!(states.iter().all(|state| state.resource.as_str().starts_with('L') && !state.holders.is_empty()));
            assert!(states.is_sorted_by(|one, next| one.resource < next.resource), "each once, in order");
            described(&states);
        }
        6 => {
            let broken = match at_least {
                Some(at_least) => store.break_above(&claim.resource, at_least).await?,
                None => store.break_hold(&claim.resource).await?,
            };
            if let Some(broken) = broken {
                sound(broken.fence);
                assert!(broken.holders.iter().all(|holder| holder.token.is_none_or(|token| i64::try_from(token.get()).is_ok())));
            }
        }
        _ => {
            let server = store.identify(LEASE).await?;
            assert!(!server.id.is_empty() && server.up.is_some());
        }
    }
    Ok(())
}

/// A grant has a token that fences can keep, and only what holds is granted.
fn granted(claim: &Claim, attempt: &Attempt) {
    match attempt {
        Attempt::Granted { token, valid_for } => {
            assert!(claim.mode.holds(), "{attempt:?} to {:?}", claim.mode);
            assert_eq!(*valid_for, claim.lease);
            sound(*token);
            assert!(token.plus(u64::from(claim.tokens) - 1).is_some(), "{attempt:?} reserves what is no token");
        }
        Attempt::Done { .. } => assert!(!claim.mode.holds(), "{attempt:?} to {:?}", claim.mode),
        Attempt::Busy { retry: Retry::OnSignal { .. }, .. } => {}
        Attempt::Busy { retry: Retry::After(_), .. } => panic!("one server does not collide"),
    }
}

fn sound(token: Token) {
    assert!(token.get() > 0 && i64::try_from(token.get()).is_ok(), "{token} is no token that a store hands out");
}

fn described(states: &[State]) {
    let tokens = states.iter().flat_map(|state| state.holders.iter().filter_map(|holder| holder.token).chain(state.fence));
    assert!(tokens.into_iter().all(|token| i64::try_from(token.get()).is_ok()), "{states:?}");
}

/// A sentinel's answers: where the master is, and by which epoch.
pub(crate) fn sentinels(data: &[u8]) {
    run(async {
        let socket = Socket::new();
        let sentinels = Sentinels::behind(at(socket.path.clone()), dial(), TIMEOUT);
        let address = tokio::select! {
            address = tokio::time::timeout(2 * TIMEOUT, sentinels.address()) => address.expect("it ends when the sentinel has gone"),
            () = socket.serve(data, false) => unreachable!("it serves for ever"),
        };
        if let Err(error) = address {
            let shown = format!("{error} {error:?}");
            assert!(contains_secret(data) || !shown.contains(CANARY), "{shown}");
        }
    });
}

#[cfg(test)]
mod tests {
    use super::replies;

    #[test]
    fn no_server_can_grant_a_token_that_no_store_hands_out() {
        replies(b"\0\0\0*2\r\n:1\r\n$1\r\n0\r\n");
        // Sixteen tokens, of which the last is fifteen.
        replies(b"\0\0\x20*2\r\n:1\r\n$2\r\n15\r\n");
        replies(b"\0\0\0*2\r\n:1\r\n$19\r\n9223372036854775808\r\n");
    }

    #[test]
    fn no_server_can_grant_what_is_no_hold_nor_answer_a_hold_with_a_number() {
        replies(b"\0\x09\0*2\r\n:1\r\n$1\r\n5\r\n");
        replies(b"\0\0\0*2\r\n:2\r\n:5\r\n");
    }

    #[test]
    fn a_server_that_answers_fewer_renewals_than_it_was_asked_for_is_not_understood() {
        replies(b"\x02\0\0*1\r\n:1\r\n\xfe*1\r\n:1\r\n\xfe*0\r\n");
        replies(b"\x02\0\0*3\r\n:1\r\n:1\r\n:1\r\n\xfe*9\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n");
    }
}
