//! What every store of records does, asked directly.

use std::sync::Arc;
use std::time::Duration;

use tenure::Token;
use tenure::once::{Begin, Begun, Finished, Key, Records};

use super::shelf::Shelf;
use tenure_testkit::locker::must;

const LONG: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);

const NEW: Begun = Begun::Yours { unfinished: None };

fn t(n: u64) -> Token {
    Token::new(n)
}

struct Asked {
    records: Arc<dyn Records>,
    key: Key,
}

async fn on(shelf: &Shelf, name: &str) -> Asked {
    Asked { records: shelf.records().await, key: Key::new(shelf.key(name)).expect("a key") }
}

impl Asked {
    async fn begin(&self, token: u64) -> Begun {
        self.begin_for(token, LONG).await
    }

    async fn begin_for(&self, token: u64, keep: Duration) -> Begun {
        self.records.begin(&self.key, Begin { token: t(token), keep, repeat: true }).await.expect("begun")
    }

    async fn begin_first(&self, token: u64) -> Begun {
        self.records.begin(&self.key, Begin { token: t(token), keep: LONG, repeat: false }).await.expect("begun")
    }

    async fn finish(&self, token: u64, result: &str) -> Finished {
        self.finish_for(token, result, LONG).await
    }

    async fn finish_for(&self, token: u64, result: &str, keep: Duration) -> Finished {
        self.records.finish(&self.key, t(token), result.as_bytes(), keep).await.expect("asked")
    }

    /// Token, the one before, result.
    async fn look(&self) -> Option<(u64, Option<u64>, Option<String>)> {
        let record = self.records.look(&self.key).await.expect("looked")?;
        let result = record.result.map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        Some((record.token.get(), record.unfinished.map(Token::get), result))
    }

    async fn until_gone(&self) {
        let gone = async {
            while self.look().await.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        must("the record's time is up", gone).await;
    }
}

fn done(token: u64, result: &str) -> Begun {
    Begun::Done { token: t(token), result: result.as_bytes().to_vec() }
}

pub(crate) async fn what_is_finished_is_done_for_all(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    assert_eq!(asked.look().await, None);
    assert_eq!(asked.begin(5).await, NEW);
    assert_eq!(asked.look().await, Some((5, None, None)));
    assert_eq!(asked.finish(5, "one").await, Finished::Recorded);
    // Also for one whose token is smaller: it is done all the same.
    for token in [9, 5, 3] {
        assert_eq!(asked.begin(token).await, done(5, "one"));
        assert_eq!(asked.begin_first(token).await, done(5, "one"));
    }
    assert_eq!(asked.look().await, Some((5, None, Some("one".to_owned()))));
}

pub(crate) async fn repeated_questions_have_the_same_answers(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    for _ in 0..3 {
        assert_eq!(asked.begin(5).await, NEW);
        assert_eq!(asked.begin_first(5).await, NEW);
    }
    // The one who takes over is told of the other each time.
    for _ in 0..3 {
        assert_eq!(asked.begin(7).await, Begun::Yours { unfinished: Some(t(5)) });
        assert_eq!(asked.begin_first(7).await, Begun::Yours { unfinished: Some(t(5)) });
    }
    for _ in 0..3 {
        assert_eq!(asked.finish(7, "seven").await, Finished::Recorded);
    }
    assert_eq!(asked.finish(7, "another").await, Finished::Recorded);
    assert_eq!(asked.look().await, Some((7, Some(5), Some("seven".to_owned()))));
    for _ in 0..2 {
        assert_eq!(asked.records.forget(&asked.key, t(5)).await.expect("asked"), Some(t(7)));
    }
    for _ in 0..2 {
        assert_eq!(asked.records.forget(&asked.key, t(7)).await.expect("asked"), None);
    }
    assert_eq!(asked.look().await, None);
}

pub(crate) async fn who_was_overtaken_can_neither_begin_nor_record(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    assert_eq!(asked.begin(5).await, NEW);
    assert_eq!(asked.begin(7).await, Begun::Yours { unfinished: Some(t(5)) });
    assert_eq!(asked.begin(5).await, Begun::Stale { seen: t(7) });
    assert_eq!(asked.begin_first(5).await, Begun::Stale { seen: t(7) });
    assert_eq!(asked.finish(5, "five").await, Finished::Stale { seen: t(7) });
    assert_eq!(asked.look().await, Some((7, Some(5), None)), "nothing was changed");
    assert_eq!(asked.finish(7, "seven").await, Finished::Recorded);
    assert_eq!(asked.finish(5, "five").await, Finished::Stale { seen: t(7) });
    assert_eq!(asked.begin(9).await, done(7, "seven"));
}

pub(crate) async fn what_is_unfinished_is_begun_again_only_if_asked_to(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    assert_eq!(asked.begin_first(5).await, NEW);
    assert_eq!(asked.begin_first(7).await, Begun::Unfinished { token: t(5) });
    assert_eq!(asked.look().await, Some((5, None, None)), "nothing was changed");
    assert_eq!(asked.finish(5, "five").await, Finished::Recorded);
    assert_eq!(asked.begin_first(7).await, done(5, "five"));
}

pub(crate) async fn records_and_marks_end_by_age(shelf: Shelf) {
    let asked = on(&shelf, "result").await;
    assert_eq!(asked.begin(5).await, NEW);
    assert_eq!(asked.finish_for(5, "old", SHORT).await, Finished::Recorded);
    asked.until_gone().await;
    // As if it had never been: also for a token that is smaller.
    assert_eq!(asked.begin_first(3).await, NEW);
    assert_eq!(asked.look().await, Some((3, None, None)));

    let asked = on(&shelf, "mark").await;
    assert_eq!(asked.begin_for(5, SHORT).await, NEW);
    asked.until_gone().await;
    assert_eq!(asked.begin_for(7, SHORT).await, NEW);
    // Work that took longer than its mark is kept is recorded all the same.
    asked.until_gone().await;
    assert_eq!(asked.finish(7, "late").await, Finished::Recorded);
    assert_eq!(asked.look().await, Some((7, None, Some("late".to_owned()))));
}

pub(crate) async fn a_result_is_kept_from_when_it_was_recorded(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    assert_eq!(asked.begin_for(5, SHORT).await, NEW);
    assert_eq!(asked.finish_for(5, "kept", LONG).await, Finished::Recorded);
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(asked.look().await, Some((5, None, Some("kept".to_owned()))));
    let age = asked.records.look(&asked.key).await.expect("looked").expect("there").age;
    assert!(age >= SHORT && age < LONG, "{age:?}");
}

pub(crate) async fn sweeping_leaves_what_is_kept(shelf: Shelf) {
    let kept = on(&shelf, "kept").await;
    assert_eq!(kept.begin(1).await, NEW);
    for n in 0..5 {
        let asked = on(&shelf, &format!("over {n}")).await;
        assert_eq!(asked.begin_for(1, SHORT).await, NEW);
        asked.until_gone().await;
    }
    // Other tests sweep too.
    kept.records.sweep().await.expect("swept");
    assert_eq!(kept.look().await, Some((1, None, None)));
    for n in 0..5 {
        assert_eq!(on(&shelf, &format!("over {n}")).await.look().await, None);
    }
}

pub(crate) async fn sweeping_is_in_nobodys_way(shelf: Shelf) {
    let sweeper = shelf.records().await;
    let sweeping = tokio::spawn(async move {
        loop {
            sweeper.sweep().await.expect("swept");
            tokio::task::yield_now().await;
        }
    });
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10 {
        let asked = on(&shelf, &format!("{n}")).await;
        tasks.spawn(async move {
            // Each time over a mark whose time is up or is not.
            for token in 1..20 {
                let begun = asked.begin_for(token, SHORT).await;
                assert!(matches!(begun, Begun::Yours { .. }), "{begun:?}");
                assert_eq!(asked.finish_for(token, "", SHORT).await, Finished::Recorded);
                asked.until_gone().await;
            }
        });
    }
    must("all are through", tasks.join_all()).await;
    assert!(!sweeping.is_finished(), "the sweeper had no trouble either");
    sweeping.abort();
}

pub(crate) async fn keys_of_all_kinds_are_kept_apart(shelf: Shelf) {
    let longest = "x".repeat(Key::MAX_BYTES - shelf.key("").len());
    let names =
        ["a", "A", "a ", " a", "ä", "a\u{308}", "ß", "ss", "\0", "a\0", "🔒", "%", "_", "'", "\"", "\\", "a\nb", &longest];
    for (n, name) in (1..).zip(names) {
        let asked = on(&shelf, name).await;
        assert_eq!(asked.begin(n).await, NEW, "{name:?}");
        assert_eq!(asked.finish(n, name).await, Finished::Recorded, "{name:?}");
    }
    for (n, name) in (1..).zip(names) {
        assert_eq!(on(&shelf, name).await.begin(100).await, done(n, name));
    }
}

pub(crate) async fn large_results_and_tokens_come_back_whole(shelf: Shelf) {
    let asked = on(&shelf, "k").await;
    let last = i64::MAX.unsigned_abs();
    // Next to each other, where floating point would take them for equal.
    assert_eq!(asked.begin(last - 2).await, NEW);
    assert_eq!(asked.begin(last - 1).await, Begun::Yours { unfinished: Some(t(last - 2)) });
    assert_eq!(asked.finish(last - 2, "").await, Finished::Stale { seen: t(last - 1) });
    assert_eq!(asked.begin(last).await, Begun::Yours { unfinished: Some(t(last - 1)) });
    let large: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
    assert_eq!(asked.records.finish(&asked.key, t(last), &large, LONG).await.expect("asked"), Finished::Recorded);
    assert!(asked.begin(last).await == Begun::Done { token: t(last), result: large });
}

pub(crate) async fn of_many_who_begin_at_once_the_largest_token_has_it(shelf: Shelf) {
    for round in 0..5 {
        let name = format!("round {round}");
        let mut tasks = tokio::task::JoinSet::new();
        for token in 1..=20 {
            let asked = on(&shelf, &name).await;
            tasks.spawn(async move {
                let begun = asked.begin(token).await;
                let taken = matches!(begun, Begun::Yours { unfinished } if unfinished.is_none_or(|other| other < t(token)));
                assert!(taken || matches!(begun, Begun::Stale { seen } if seen > t(token)), "{token}: {begun:?}");
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.expect("no panic");
        }
        let asked = on(&shelf, &name).await;
        assert_eq!(asked.look().await.expect("there").0, 20);
        assert_eq!(asked.finish(19, "late").await, Finished::Stale { seen: t(20) });
        assert_eq!(asked.finish(20, "mine").await, Finished::Recorded);
    }
}
