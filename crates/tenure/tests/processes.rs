//! Real processes: killed, stopped, and very many at once. Each is this program again, in a role.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use tenure::Locker;
use tenure_testkit::player::{self, Player};
use tenure_testkit::{Needs, RedisServer, Signal, Test, eventually, signal};

/// A store that a test's processes share.
#[derive(Clone, Copy)]
struct Store {
    name: &'static str,
    needs: Needs,
    open: fn() -> Opened,
}

/// Keeps the store alive for one test.
struct Opened {
    url: String,
    _server: Option<RedisServer>,
    dir: tempfile::TempDir,
}

const STORES: [Store; 3] = [
    Store { name: "sqlite", needs: Needs::Nothing, open: || opened(None, "") },
    Store { name: "redis", needs: Needs::Redis, open: || opened(Some(RedisServer::start()), "") },
    Store { name: "redis_plain", needs: Needs::Redis, open: || opened(Some(RedisServer::start()), "&layout=plain") },
];

fn opened(server: Option<RedisServer>, options: &str) -> Opened {
    let dir = tempfile::tempdir().expect("a directory");
    let base = server.as_ref().map_or_else(|| format!("sqlite:{}", dir.path().join("locks.db").display()), RedisServer::url);
    Opened { url: format!("{base}?timeout=30s{options}"), _server: server, dir }
}

fn main() {
    if let Some(role) = player::role() {
        return play(&role);
    }
    let mut tests = Vec::new();
    for store in STORES {
        let mut add = |name: &str, run: fn(Opened)| {
            tests.push(Test::new(format!("{}::{name}", store.name), store.needs, move || run((store.open)())));
        };
        add("a_killed_holder_frees_the_lock", a_killed_holder_frees_the_lock);
        add("a_stopped_holder_knows_before_its_next_statement", a_stopped_holder_knows_before_its_next_statement);
        add("two_hundred_processes_lose_no_update", two_hundred_processes_lose_no_update);
        add("processes_killed_at_any_point_block_nobody", processes_killed_at_any_point_block_nobody);
        if store.name == "redis_plain" {
            continue;
        }
        add(
            "half_of_a_thousand_in_the_queue_are_killed_and_the_rest_served_in_order",
            half_of_a_thousand_in_the_queue_are_killed,
        );
        add("a_killed_reader_frees_the_writer", a_killed_reader_frees_the_writer);
        add("permits_of_a_killed_process_come_back", permits_of_a_killed_process_come_back);
    }
    let sqlite = STORES[0];
    tests.push(Test::new("sqlite::a_killed_holder_is_noticed_at_once", Needs::Nothing, move || {
        a_killed_holder_is_noticed_at_once(&(sqlite.open)());
    }));
    tests.push(Test::new("sqlite::tokens_outlive_all_processes", Needs::Nothing, move || {
        tokens_outlive_all_processes(&(sqlite.open)())
    }));
    tenure_testkit::run(tests)
}

fn play(role: &str) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let locker = Locker::connect(&args[0]).await.expect("connected");
        match role {
            "hold" => hold(&locker).await,
            "queue" => stand_in_the_queue(&locker, args[1].parse().expect("a number")).await,
            "read" => say_and_hold(locker.rwlock("L").read().await).await,
            "permits" => say_and_hold(locker.semaphore("L", 3).acquire_many(2).await).await,
            "count" => count(&locker, Path::new(&args[1])).await,
            other => panic!("no such role: {other}"),
        }
        locker.close().await.expect("closed");
    });
}

/// Locks, says so, and then answers each line with whether it still holds.
async fn hold(locker: &Locker) {
    let guard = locker.mutex("L").lock().await.expect("locked");
    println!("{}", guard.token());
    for line in std::io::stdin().lock().lines() {
        match line.expect("read").as_str() {
            // The very next statement after having stood still.
            "check" => println!("{}", guard.is_valid()),
            "run" => println!("{}", guard.run(async { "ran" }).await.unwrap_or("lost")),
            "lost" => println!("{}", guard.lost().await.reason),
            other => panic!("no such word: {other}"),
        }
    }
}

/// Says that it holds, until it is killed.
async fn say_and_hold(guard: tenure::Result<tenure::Guard>) {
    let guard = guard.expect("held");
    println!("{}", guard.token());
    std::future::pending::<()>().await;
}

/// Waits in the queue of a fair lock many times, and says when each was served.
async fn stand_in_the_queue(locker: &Locker, times: usize) {
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..times {
        let lock = locker.mutex("L").fair().lock();
        tasks.spawn(async move {
            let guard = lock.await.expect("locked");
            println!("{} {}", guard.token(), guard.owner_id());
            guard.release().await.expect("given back");
        });
    }
    while tasks.join_next().await.is_some() {}
}

/// Adds one to a number in a file under the lock.
async fn count(locker: &Locker, file: &Path) {
    let guard = locker.mutex("L").lock().await.expect("locked");
    let n = read_number(file);
    write_number(file, n + 1);
    guard.check().expect("held to the end");
    guard.release().await.expect("given back");
}

fn read_number(file: &Path) -> u64 {
    let mut text = String::new();
    File::open(file).and_then(|mut f| f.read_to_string(&mut text)).expect("read");
    text.trim().parse().expect("a number")
}

fn write_number(file: &Path, n: u64) {
    let mut file = OpenOptions::new().write(true).open(file).expect("opened");
    file.rewind().and_then(|()| write!(file, "{n:>8}")).expect("written");
}

fn short(store: &Opened) -> String {
    format!("{}&lease=2s", store.url)
}

fn a_killed_holder_frees_the_lock(store: Opened) {
    let mut holder = Player::start("hold", &short(&store), &[]);
    let token: u64 = holder.line().parse().expect("a token");
    let mut waiter = Player::start("hold", &short(&store), &[]);
    holder.kill();
    let next: u64 = waiter.line().parse().expect("a token");
    assert!(next > token);
}

fn a_killed_holder_is_noticed_at_once(store: &Opened) {
    // With a lease of an hour, only the kernel can tell.
    let url = format!("{}&lease=1h", store.url);
    let mut holder = Player::start("hold", &url, &[]);
    holder.line();
    let mut waiters: Vec<Player> = (0..3).map(|_| Player::start("hold", &url, &[])).collect();
    let waiting = || block_on(async { Locker::connect(&url).await?.mutex("L").inspect().await }).expect("inspected").waiting;
    eventually("three processes wait", || waiting() == Some(3));
    holder.kill();
    // Each is killed in its turn; nobody ever gives the lock back.
    while !waiters.is_empty() {
        eventually("the next one has it", || {
            block_on(async { Locker::connect(&url).await?.mutex("L").inspect().await }).expect("inspected").waiting
                == Some(u32::try_from(waiters.len()).expect("few") - 1)
        });
        let state = block_on(async { Locker::connect(&url).await?.mutex("L").inspect().await }).expect("inspected");
        let about = state.holders[0].note.clone().expect("who it is");
        let at = waiters.iter().position(|w| about.contains(&format!(" {} ", w.child.id()))).expect("one of them");
        waiters.remove(at).kill();
    }
    let locked = block_on(async { Locker::connect(&url).await?.mutex("L").try_lock().await }).expect("asked");
    assert!(locked.is_some());
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Runtime::new().expect("a runtime").block_on(future)
}

fn a_stopped_holder_knows_before_its_next_statement(store: Opened) {
    for word in ["check", "run", "lost"] {
        let mut holder = Player::start("hold", &short(&store), &[]);
        let token: u64 = holder.line().parse().expect("a token");
        holder.tell("check");
        assert_eq!(holder.line(), "true");
        // It reads its next line: it stands still there, and not between a check and a write.
        signal(holder.child.id(), Signal::STOP);
        let mut next = Player::start("hold", &short(&store), &[]);
        let larger: u64 = next.line().parse().expect("locked when the lease of the one that stands still has ended");
        assert!(larger > token);
        holder.tell(word);
        signal(holder.child.id(), Signal::CONT);
        let answer = holder.line();
        let known = ["false", "lost", "the lease ended before a renewal was confirmed", "the store says that the hold is gone"];
        assert!(known.contains(&answer.as_str()), "{word}: {answer}");
        next.tell("check");
        assert_eq!(next.line(), "true", "the next holder is left alone");
        next.kill();
    }
}

fn two_hundred_processes_lose_no_update(store: Opened) {
    let file = store.dir.path().join("number");
    std::fs::write(&file, "       0").expect("written");
    let path = file.to_str().expect("UTF-8").to_owned();
    let mut players: Vec<Player> = (0..200).map(|_| Player::start("count", &store.url, &[&path])).collect();
    for player in &mut players {
        assert!(player.child.wait().expect("waited").success());
    }
    assert_eq!(read_number(&file), 200);
}

fn processes_killed_at_any_point_block_nobody(store: Opened) {
    let file = store.dir.path().join("number");
    std::fs::write(&file, "       0").expect("written");
    let path = file.to_str().expect("UTF-8").to_owned();
    let url = short(&store);
    // Killed after more and more of what they do: starting, connecting, asking, holding, giving back.
    for delay in 0..30 {
        let mut victim = Player::start("count", &url, &[&path]);
        std::thread::sleep(Duration::from_millis(delay));
        victim.kill();
    }
    let mut last = Player::start("hold", &url, &[]);
    last.line().parse::<u64>().expect("a token");
}

fn half_of_a_thousand_in_the_queue_are_killed(store: Opened) {
    // Long enough for a busy machine on which hundreds of other processes start: a position that lapses is one at the end of the queue.
    let url = format!("{}&lease=10s", store.url);
    let locker = block_on(Locker::connect(&url)).expect("connected");
    let held = block_on(locker.mutex("L").fair().lease(Duration::from_secs(300)).lock()).expect("locked");
    let mut players: Vec<Player> = (0..10).map(|_| Player::start("queue", &url, &["100"])).collect();
    let queued = || block_on(locker.mutex("L").inspect()).expect("inspected").queue;
    eventually("a thousand are in the queue", || queued().len() == 1000);
    let queue = queued();
    // Any of them: the hundred positions of each are spread over the whole queue.
    for _ in 0..5 {
        players.remove(queue.len() % players.len()).kill();
    }
    let start = std::time::Instant::now();
    block_on(held.release()).expect("given back");
    let mut served: Vec<(u64, String)> = Vec::new();
    for player in &mut players {
        for _ in 0..100 {
            let line = player.line();
            let (token, owner) = line.split_once(' ').expect("a token and an owner");
            served.push((token.parse().expect("a number"), owner.to_owned()));
        }
    }
    let took = start.elapsed();
    served.sort();
    let order: Vec<&str> = served.iter().map(|(_, owner)| &**owner).collect();
    let due: Vec<&str> = queue.iter().map(String::as_str).filter(|owner| order.contains(owner)).collect();
    assert_eq!((order.len(), order == due), (500, true), "in the order in which they came");
    println!("500 of 1000 were dead, the others were served in {took:?}");
    // One lease for all of the dead together; added up it would be 5000 s.
    assert!(took < Duration::from_secs(100), "{took:?}");
}

fn a_killed_reader_frees_the_writer(store: Opened) {
    let url = short(&store);
    let mut reader = Player::start("read", &url, &[]);
    let token: u64 = reader.line().parse().expect("a token");
    let locker = block_on(Locker::connect(&url)).expect("connected");
    assert!(block_on(locker.rwlock("L").try_write()).expect("asked").is_none());
    let second = block_on(locker.rwlock("L").read()).expect("read");
    reader.kill();
    block_on(second.release()).expect("given back");
    let writer = block_on(locker.rwlock("L").write()).expect("written");
    assert!(writer.token().get() > token);
}

fn permits_of_a_killed_process_come_back(store: Opened) {
    let url = short(&store);
    let mut holder = Player::start("permits", &url, &[]);
    holder.line();
    let locker = block_on(Locker::connect(&url)).expect("connected");
    let semaphore = locker.semaphore("L", 3);
    assert!(block_on(semaphore.try_acquire_many_for(2, Duration::ZERO)).expect("asked").is_none());
    holder.kill();
    drop(block_on(semaphore.acquire_many(3)).expect("acquired"));
}

fn tokens_outlive_all_processes(store: &Opened) {
    let mut last = 0;
    for _ in 0..5 {
        let mut holder = Player::start("hold", &store.url, &[]);
        let token: u64 = holder.line().parse().expect("a token");
        assert!(token > last);
        last = token;
        holder.kill();
    }
}
