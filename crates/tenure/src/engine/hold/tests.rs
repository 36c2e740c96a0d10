use super::*;
use crate::backend::Mode;
use crate::name::{ClientId, OwnerIds, Resource};

const LEASE: Duration = Duration::from_secs(30);

fn hold(clock: &Clock) -> Hold {
    let owner = OwnerIds::new(ClientId::random().expect("random bits")).next();
    let claim = Claim::new(Resource::new("a").expect("a name"), owner, Mode::Exclusive, LEASE);
    let terms = Terms { lease: LEASE, fixed: false, max_hold: None, note: None, linger: Duration::ZERO };
    let now = clock.now();
    Hold::new(claim, Token::new(1), terms, clock.clone(), now, now.after(LEASE))
}

#[test]
fn a_hold_that_is_over_is_never_extended() {
    let clock = Clock::for_tests();
    let ends: [fn(&Hold, &Clock); 4] = [
        // Seen by its guard.
        |hold, clock| {
            clock.jump(LEASE);
            assert!(!hold.is_valid());
        },
        // Seen by nobody yet.
        |_, clock| clock.jump(LEASE),
        |hold, _| assert!(hold.lose(LostReason::Revoked)),
        |hold, clock| assert!(hold.mark_released(clock.now())),
    ];
    for end in ends {
        let hold = hold(&clock);
        assert!(hold.extend(clock.now().after(LEASE)));
        end(&hold, &clock);
        assert!(!hold.extend(clock.now().after(LEASE)));
        assert!(!hold.is_valid() && hold.deadline().is_none() && hold.is_lost() != hold.is_released());
        assert!(!hold.lose(LostReason::Closed) && !hold.mark_released(clock.now()), "it ends once");
    }
}

#[test]
fn a_renewal_in_the_moment_of_a_release_never_takes_it_for_a_loss() {
    let clock = Clock::for_tests();
    for _ in 0..20_000 {
        let hold = hold(&clock);
        let later = clock.now().after(LEASE * 2);
        std::thread::scope(|scope| {
            let renewal = scope.spawn(|| {
                while hold.extend(later) {}
                hold.is_released()
            });
            assert!(hold.mark_released(clock.now()));
            assert!(renewal.join().expect("no panic"), "a release looked like a loss");
        });
    }
}
