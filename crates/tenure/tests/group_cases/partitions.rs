//! Work that is split, and spread over the live members.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tenure::{Locker, Partition, Token};
use tokio::task::JoinHandle;

use super::store::{Store, eventually, until_all_free};
use tenure_testkit::locker::must;

const COUNT: u32 = 12;
/// Short, so that the dead are missed soon; long, so that a busy machine loses nothing.
const LEASE: Duration = Duration::from_secs(3);

/// Who works on what, as the works themselves say.
#[derive(Debug, Default)]
struct Board {
    at_work: BTreeMap<u32, usize>,
    last: BTreeMap<u32, Token>,
    wrong: Vec<String>,
}

type Shared = Arc<Mutex<Board>>;

fn read(board: &Shared) -> MutexGuard<'_, Board> {
    board.lock().expect("not poisoned")
}

/// One work on one partition.
struct Work {
    board: Shared,
    index: u32,
}

impl Work {
    fn begin(board: &Shared, member: usize, partition: &Partition) -> Self {
        let (index, token) = (partition.index(), partition.token());
        let mut now = read(board);
        if let Some(other) = now.at_work.insert(index, member) {
            now.wrong.push(format!("{index} has two owners: {other} and {member}"));
        }
        if now.last.insert(index, token).is_some_and(|last| last >= token) {
            now.wrong.push(format!("{index}: the token {token} has not grown"));
        }
        drop(now);
        Self { board: Arc::clone(board), index }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        read(&self.board).at_work.remove(&self.index);
    }
}

fn take_part(locker: &Locker, board: &Shared, member: usize) -> JoinHandle<()> {
    let (group, board) = (locker.partitions("p", COUNT), Arc::clone(board));
    tokio::spawn(async move {
        let run = group.run(|partition| {
            let board = Arc::clone(&board);
            async move {
                let _work = Work::begin(&board, member, &partition);
                std::future::pending::<()>().await;
            }
        });
        // A member that died is told.
        drop(run.await.expect_err("it works for ever"));
    })
}

async fn until_even(board: &Shared, members: &[usize]) {
    let (least, rest) = (COUNT as usize / members.len(), COUNT as usize % members.len());
    eventually(&format!("an even spread over {members:?}: {board:?}"), async || {
        let mut counts: BTreeMap<usize, usize> = members.iter().map(|member| (*member, 0)).collect();
        for member in read(board).at_work.values() {
            *counts.entry(*member).or_default() += 1;
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort_unstable();
        let even: Vec<usize> = (0..members.len()).map(|n| least + usize::from(n >= members.len() - rest)).collect();
        counts == even
    })
    .await;
}

pub(crate) async fn partitions_move_evenly_and_never_have_two_owners(store: Store) {
    let board = Shared::default();
    let builder = || Locker::builder().lease(LEASE);
    let (a, b) = (store.locker_with(builder()).await, store.locker_with(builder()).await);
    let (c, life) = store.mortal(LEASE).await;
    let first = take_part(&a, &board, 0);
    until_even(&board, &[0]).await;
    let second = take_part(&b, &board, 1);
    until_even(&board, &[0, 1]).await;
    let third = take_part(&c, &board, 2);
    until_even(&board, &[0, 1, 2]).await;
    // One leaves.
    second.abort();
    until_even(&board, &[0, 2]).await;
    // One comes back and, meanwhile, one dies.
    let second = take_part(&b, &board, 1);
    life.die();
    until_even(&board, &[0, 1]).await;
    let fifth = take_part(&b, &board, 5);
    let sixth = take_part(&b, &board, 6);
    let seventh = take_part(&a, &board, 7);
    until_even(&board, &[0, 1, 5, 6, 7]).await;
    for task in [first, second, third, fifth, sixth, seventh] {
        task.abort();
    }
    until_all_free(&a).await;
    assert!(read(&board).wrong.is_empty(), "{:?}", read(&board).wrong);
}

pub(crate) async fn a_member_that_leaves_gives_all_back(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let mut member = ours.partitions("p", 5).note("us").join().await.expect("joined");
    while member.owned().len() < 5 {
        must("partitions", member.changed()).await.expect("changed");
    }
    assert!(member.trouble().is_none());
    let state = theirs.mutex("p/3").inspect().await.expect("inspected");
    assert_eq!(state.holders[0].note.as_deref(), Some("us"));
    member.leave().await.expect("left");
    assert!(theirs.list("").await.expect("listed").is_empty());
    // Closing the locker ends the membership, and says so.
    let mut member = ours.partitions("p", 5).join().await.expect("joined");
    ours.close().await.expect("closed");
    let end = async { while member.changed().await.is_ok() {} };
    must("the end", end).await;
    assert!(member.owned().is_empty());
    until_all_free(&theirs).await;
}

pub(crate) async fn a_lost_partition_is_taken_anew(store: Store) {
    let (ours, theirs) = (store.locker().await, store.locker().await);
    let member = ours.partitions("p", 3).lease(LEASE).join().await.expect("joined");
    let board = Shared::default();
    let work = member.run(|partition| {
        let work = Work::begin(&board, 0, &partition);
        async move {
            partition.ended().await;
            drop(work);
        }
    });
    let test = async {
        eventually("all", async || read(&board).at_work.len() == 3).await;
        let before = read(&board).last.clone();
        theirs.mutex("p/1").break_hold().await.expect("broken").expect("held");
        eventually("a new term", async || {
            let now = read(&board);
            now.at_work.len() == 3 && now.last[&1] > before[&1] && now.last[&0] == before[&0]
        })
        .await;
        // Losing the seat loses no partition.
        let seats = theirs.list("p/members").await.expect("listed");
        theirs.mutex(&seats[0].resource).break_hold().await.expect("broken").expect("held");
        eventually("a new seat", async || {
            let now = theirs.list("p/members").await.expect("listed");
            now.first().is_some_and(|now| now.holders[0].owner != seats[0].holders[0].owner)
        })
        .await;
        assert_eq!(member.owned(), [0, 1, 2]);
    };
    tokio::select! {
        ended = work => panic!("{ended:?}"),
        () = test => {}
    }
    assert!(read(&board).wrong.is_empty(), "{:?}", read(&board).wrong);
}
