use super::*;
use crate::clock::Clock;
use crate::engine::hold::Terms;
use crate::engine::turnstile::{self, Gate, Turnstile};
use crate::name::{ClientId, OwnerIds, Resource, Token};

const LEASE: Duration = Duration::from_secs(30);

struct Desk {
    clock: Clock,
    owners: OwnerIds,
    book: Book,
}

impl Desk {
    fn new() -> Self {
        let owners = OwnerIds::new(ClientId::random().expect("random bits"));
        Self { clock: Clock::for_tests(), owners, book: Book::default() }
    }

    /// Keeps a new hold. Whether the keeper is woken for it.
    fn keep(&mut self, lease: Duration, fixed: bool) -> (Arc<Hold>, bool) {
        let now = self.clock.now();
        let claim = Claim::new(Resource::new("a").expect("a name"), self.owners.next(), Mode::Exclusive, lease);
        let terms = Terms { lease, fixed, max_hold: None, note: None, linger: Duration::ZERO };
        let hold = Arc::new(Hold::new(claim, Token::new(1), terms, self.clock.clone(), now, now.after(lease)));
        let due = if fixed { now.after(lease) } else { now.after(lease / 3) };
        let (_, wakes) = self.book.keep(KeptHold::new(Arc::clone(&hold), None, now.after(lease)), due);
        (hold, wakes)
    }

    fn is_due(&mut self) -> (Vec<u64>, usize) {
        let Due { ended, renew, .. } = self.book.due(self.clock.now());
        (renew, ended.len())
    }
}

#[test]
fn a_lock_that_is_given_back_before_it_is_due_never_wakes_the_keeper() {
    let mut desk = Desk::new();
    // The first one does: the keeper has nothing to wait for.
    let (first, wakes) = desk.keep(LEASE, false);
    assert!(wakes);
    let looks_at = desk.book.next_look().expect("something is due");
    desk.book.remove(first.claim.owner.number);
    for _ in 0..1000 {
        desk.clock.jump(LEASE / 4000);
        let (hold, wakes) = desk.keep(LEASE, false);
        assert!(!wakes, "it looks at {looks_at:?} anyway");
        desk.book.remove(hold.claim.owner.number);
    }
    let (_, wakes) = desk.keep(LEASE / 100, false);
    assert!(wakes, "one that is due sooner does");
}

#[test]
fn a_suspect_hold_is_looked_at_at_once_but_not_all_the_time() {
    let mut desk = Desk::new();
    let (hold, _) = desk.keep(LEASE, false);
    let owner = hold.claim.owner;
    desk.book.next_look();
    assert!(desk.book.suspect(owner, desk.clock.now()), "the keeper is woken");
    assert_eq!(desk.is_due(), (vec![owner.number], 0));
    desk.book.begin_renewal(&[owner.number], LEASE, desk.clock.now());
    // What is heard while it is renewed may be later than the answer.
    desk.book.suspect(owner, desk.clock.now());
    assert_eq!(desk.is_due(), (vec![], 0), "it is being renewed");
    desk.book.end_renewal(owner.number, Mode::Exclusive).expect("its hold");
    let now = desk.clock.now();
    desk.book.after_renewal(owner.number, now, now.after(LEASE / 3));
    assert_eq!(desk.is_due(), (vec![], 0), "a moment ago it was there");
    desk.clock.jump(LOOK_EVERY);
    assert_eq!(desk.is_due(), (vec![owner.number], 0));
    let stranger = Desk::new().owners.next();
    assert!(!desk.book.suspect(OwnerId { number: owner.number, ..stranger }, desk.clock.now()), "another client's");
}

#[test]
fn a_fixed_lease_that_is_looked_at_lasts_no_longer() {
    let mut desk = Desk::new();
    let (hold, _) = desk.keep(LEASE, true);
    desk.clock.jump(LEASE / 3);
    assert_eq!(desk.is_due(), (vec![], 0), "nobody renews it");
    desk.book.suspect(hold.claim.owner, desk.clock.now());
    let (due, _) = desk.is_due();
    let batch = desk.book.begin_renewal(&due, LEASE, desk.clock.now());
    assert!(batch.claims[0].lease <= LEASE - LEASE / 3, "{:?}", batch.claims[0].lease);
    desk.clock.jump(LEASE);
    assert_eq!(desk.is_due(), (vec![], 1), "it has ended");
}

#[test]
fn what_the_store_says_is_gone_is_handed_to_nobody() {
    let mut desk = Desk::new();
    let (hold, _) = desk.keep(LEASE, false);
    let (owner, now) = (hold.claim.owner.number, desk.clock.now());
    let gate = Gate::new(&hold.claim.resource, Mode::Exclusive).expect("a gate");
    let turnstile::Admission::Now(turn) = Turnstile::default().enter(&gate, &hold.terms, || LEASE) else {
        panic!("nobody was there")
    };
    let entry = desk.book.of(&hold).expect("kept");
    (entry.spare_tokens, entry.turn) = (3, Some(turn));
    assert!(entry.can_be_handed_over(now));
    // From this moment on: it may be given back before its loss is told.
    let gone = desk.book.end_revoked(owner, Mode::Exclusive).expect("kept");
    assert!(Arc::ptr_eq(&gone, &hold));
    assert!(!desk.book.of(&hold).expect("kept").can_be_handed_over(now));
}

#[test]
fn a_hold_is_handed_over_for_a_while_or_so_often() {
    let mut desk = Desk::new();
    let (hold, _) = desk.keep(LEASE, false);
    let gate = Gate::new(&hold.claim.resource, Mode::Exclusive).expect("a gate");
    let turnstile::Admission::Now(turn) = Turnstile::default().enter(&gate, &hold.terms, || LEASE) else {
        panic!("nobody was there")
    };
    let start = hold.since;
    let entry = desk.book.of(&hold).expect("kept");
    (entry.spare_tokens, entry.turn) = (1, Some(turn));
    let mut after = |d, handed_over| {
        entry.handed_over = handed_over;
        entry.can_be_handed_over(start.after(d))
    };
    let (soon, later) = (HAND_OVERS_FOR - Duration::from_nanos(1), HAND_OVERS_FOR);
    assert!(after(soon, u32::MAX), "for so long, however often");
    assert!(after(later, LEAST_HAND_OVERS - 1), "so often, also if that takes longer");
    assert!(!after(later, LEAST_HAND_OVERS), "then others have their turn");
    assert!(!after(LEASE, 1), "not for longer than a lease");
}
