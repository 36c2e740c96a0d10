//! Processes that are killed between any two steps, and what the next attempts are told.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tenure::once::{Begin, Begun, Finished, Key, Ledger, Record, Records};
use tenure::{Result, Token};

use super::shelf::{Address, Shelf};
use tenure_testkit::locker::{block_on, connect, must};
use tenure_testkit::player::Player;

/// The points at which a process stands still, in order.
const STEPS: [&str; 6] = ["to begin", "begun", "to work", "worked", "to record", "recorded"];

/// How far the work got and what the next one must find, for one that is killed at each of the steps.
const FOUND: [(u32, Next); 6] =
    [(0, Next::First), (0, Next::Told), (0, Next::Told), (1, Next::Told), (1, Next::Told), (1, Next::Replayed)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// Nothing has been begun.
    First,
    /// Does the work, and is told of the one that was killed.
    Told,
    Replayed,
}

pub(crate) async fn a_process_killed_between_any_two_steps_is_told_of(shelf: Shelf) {
    for (at, (step, (effects, next))) in STEPS.iter().zip(FOUND).enumerate() {
        let (key, file) = (shelf.key(step), shelf.path(&format!("effects {at}")));
        let [kind, url] = shelf.records.in_words();
        let mut victim = Player::start("once", &shelf.lock_url(), &[&kind, &url, &key, &file]);
        for passed in &STEPS[..at] {
            assert_eq!(victim.line(), *passed);
            victim.tell("go on");
        }
        assert_eq!(victim.line(), *step);
        victim.kill();
        let before = lines(&file);
        assert_eq!(before.len(), effects as usize, "killed {step}");
        let ledger = shelf.ledger().await;
        let mark = ledger.look(&key).await.expect("looked");
        // What it did not get done is refused to those who do not want it twice, and they are told whose it was.
        if next == Next::Told {
            let refused = ledger.clone().at_most_once().once(&key).run(async { Ok::<String, String>("again".to_owned()) }).await;
            let e = refused.expect_err("unfinished");
            assert!(matches!(e, tenure::once::Error::Unfinished { token, .. } if Some(token) == mark.as_ref().map(|m| m.token)));
        }
        let run = ledger.once(&key).run_with(|attempt| {
            let told = attempt.unfinished();
            append(&file, "the next one");
            async move { Ok::<_, String>(format!("{:?}", told.map(Token::get))) }
        });
        let done = must("the lock is free", run).await.expect("done");
        let unfinished = mark.as_ref().map(|mark| mark.token.get());
        let expected = match next {
            Next::First => (false, "None".to_owned()),
            Next::Told => (false, format!("{unfinished:?}")),
            Next::Replayed => (true, "done by the first".to_owned()),
        };
        assert_eq!((done.replayed, done.value), expected, "killed {step}");
        // At least once: never lost, and twice only if somebody was told.
        assert_eq!(lines(&file).len(), effects as usize + usize::from(next != Next::Replayed), "killed {step}");
    }
}

fn append(file: &str, line: &str) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(file).expect("opened");
    writeln!(file, "{line}").expect("written");
}

fn lines(file: &str) -> Vec<String> {
    std::fs::read_to_string(file).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Says where it is, and goes on when it is told to.
pub(crate) fn step(name: &str) {
    println!("{name}");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).expect("told");
}

/// The role of the process that is killed: arguments are the locks, the records, the key and the file of effects.
pub(crate) fn play(args: &[String]) {
    let [locks, kind, url, key, file] = args else { panic!("not what a process is told: {args:?}") };
    block_on(async {
        let records = Stepwise(Address::from_words(kind, url).open().await);
        let ledger = Ledger::new(&connect(locks).await, Arc::new(records)).lease(Duration::from_secs(600));
        let work = async {
            step("to work");
            append(file, "the first");
            step("worked");
            Ok::<_, String>("done by the first".to_owned())
        };
        ledger.once(key).run(work).await.expect("done");
    });
}

/// Records that stand still before and after each call.
#[derive(Debug)]
struct Stepwise(Arc<dyn Records>);

#[async_trait]
impl Records for Stepwise {
    async fn begin(&self, key: &Key, begin: Begin) -> Result<Begun> {
        step("to begin");
        let begun = self.0.begin(key, begin).await;
        step("begun");
        begun
    }

    async fn finish(&self, key: &Key, token: Token, result: &[u8], keep: Duration) -> Result<Finished> {
        step("to record");
        let finished = self.0.finish(key, token, result, keep).await;
        step("recorded");
        finished
    }

    async fn look(&self, key: &Key) -> Result<Option<Record>> {
        self.0.look(key).await
    }

    async fn forget(&self, key: &Key, token: Token) -> Result<Option<Token>> {
        self.0.forget(key, token).await
    }

    async fn sweep(&self) -> Result<u64> {
        self.0.sweep().await
    }
}
