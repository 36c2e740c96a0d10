//! The table of marks.

use tenure::Token;
use tenure::fence::Stale;
use tenure::fence::sql::FenceTable;

use super::session::Place;

pub(crate) async fn a_larger_token_passes_and_a_smaller_one_is_stale(place: Place) {
    let fences = FenceTable::default();
    let mut session = place.open().await;
    for token in [5, 6] {
        session.sell(&fences, "R", &Token::new(token)).await.expect("passed");
    }
    let stale = session.sell(&fences, "R", &Token::new(5)).await.expect_err("refused").stale().cloned();
    assert_eq!(stale, Some(Stale { resource: "R".to_owned(), token: Token::new(5), seen: Token::new(6) }));
    assert_eq!(session.units().await, 8, "nothing is written by who is stale");
    assert_eq!(session.mark("R").await, Some(6));
    let stats = fences.stats();
    assert_eq!((stats.accepted, stats.stale), (2, 1));
}
