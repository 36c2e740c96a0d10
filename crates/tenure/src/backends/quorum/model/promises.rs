//! What must hold at every moment, and the events that must occur so that it does not hold trivially.

use stateright::Property;

use super::setup::Setup;
use super::world::{Ballot, InFlight, MOST, Phase, Wire, World, Write};
use crate::name::Token;

pub(super) const ORDER: &str = "the store takes no write of an older grant after one of a newer";
pub(super) const GROWTH: &str = "a token is larger than all that were held before its ballot began";
pub(super) const UNIQUE: &str = "no two grants have one token";
pub(super) const ONE_HOLDER: &str = "at most one believes that it holds the lock";

pub(super) const TWO_GRANTS: &str = "two are granted";
pub(super) const LATE_WRITE: &str = "a write comes too late and is refused";
pub(super) const SECOND_ROUND: &str = "the nodes' tokens differ";
pub(super) const QUARANTINE: &str = "a vote does not count";
pub(super) const RENEWED: &str = "a hold is renewed";

pub(super) fn all() -> Vec<Property<Setup>> {
    let (always, sometimes) = (Property::<Setup>::always, Property::<Setup>::sometimes);
    vec![
        always(ORDER, |_, world| !world.older_after_newer),
        always(GROWTH, |_, world| world.ballots.iter().all(|one| one.token.is_none() || grows(one, world))),
        always(UNIQUE, |_, world| {
            let tokens: Vec<Token> = world.ballots.iter().filter_map(|one| one.token).collect();
            (1..tokens.len()).all(|at| !tokens[..at].contains(&tokens[at]))
        }),
        always(ONE_HOLDER, |_, world| (0..MOST).filter(|one| world.believes(*one)).count() <= 1),
        sometimes(TWO_GRANTS, |_, world| world.granted().count_ones() == 2),
        sometimes(LATE_WRITE, |_, world| world.ballots.iter().any(|one| one.write == Write::Refused)),
        sometimes(SECOND_ROUND, |_, world| world.ballots.iter().any(is_raising)),
        sometimes(QUARANTINE, |setup, world| {
            let doubtful = |wire: &Wire| matches!(wire.call, InFlight::Says { answer, restarted } if setup.is_doubtful(answer, restarted, world.now));
            world.nodes.iter().any(|node| node.wires.iter().any(doubtful))
        }),
        sometimes(RENEWED, |_, world| world.ballots.iter().any(|one| one.renewed)),
    ]
}

fn grows(one: &Ballot, world: &World) -> bool {
    (0..MOST).filter(|before| one.after & (1 << before) != 0).all(|before| world.ballots[before].token < one.token)
}

fn is_raising(one: &Ballot) -> bool {
    matches!(one.phase, Phase::Asking { target: Some(_), .. })
}
