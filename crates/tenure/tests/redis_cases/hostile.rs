//! Broken or hostile servers: little of what they send is kept, and an error soon says so.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure::{Fault, Locker};

use tenure_testkit::locker::{block_on, must};

/// What is answered to a command that is not part of the greeting.
type Answer = Arc<dyn Fn(&[String], &mut Way) -> std::io::Result<()> + Send + Sync>;

/// More than any limit, and less than hurts.
const MUCH: u64 = 400 << 20;
/// What may be on the way between two processes of one machine.
const ON_THE_WAY: u64 = 16 << 20;
/// What a reply may have at most, as `docs/redis.md` says.
const REPLY: u64 = 16 << 20;
const PUSH: u64 = 1 << 20;

/// The way to a client, which counts what it has taken.
struct Way {
    stream: TcpStream,
    taken: Arc<AtomicU64>,
}

impl Way {
    fn say(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)?;
        self.taken.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Says the same for as long as the client listens.
    fn say_for_ever(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        let many = bytes.repeat((64 << 10) / bytes.len());
        while self.taken.load(Ordering::Relaxed) < MUCH {
            self.say(&many)?;
        }
        Ok(())
    }
}

/// A listener that greets as a server does and then says what it is told to.
struct Hostile {
    port: u16,
    taken: Arc<AtomicU64>,
}

impl Hostile {
    fn start(greets: bool, answer: impl Fn(&[String], &mut Way) -> std::io::Result<()> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (taken, answer) = (Arc::new(AtomicU64::new(0)), Arc::new(answer) as Answer);
        let counted = Arc::clone(&taken);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let way = Way { stream: stream.expect("connected"), taken: Arc::clone(&counted) };
                let answer = Arc::clone(&answer);
                std::thread::spawn(move || drop(serve(way, greets, &answer)));
            }
        });
        Self { port, taken }
    }

    async fn connect(&self) -> tenure::Result<Locker> {
        Locker::connect(&format!("redis://127.0.0.1:{}?timeout=20s", self.port)).await
    }

    /// What has been taken since the last look.
    fn taken(&self) -> u64 {
        self.taken.swap(0, Ordering::Relaxed)
    }
}

fn serve(mut way: Way, greets: bool, answer: &Answer) -> std::io::Result<()> {
    let mut requests = BufReader::new(way.stream.try_clone()?);
    loop {
        let words = request(&mut requests)?;
        match &*words[0].to_ascii_uppercase() {
            "HELLO" if greets => way.say(b"%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$4\r\nrole\r\n$6\r\nmaster\r\n")?,
            "CLIENT" => way.say(b"+OK\r\n")?,
            "SET" | "DEL" => way.say(b":1\r\n")?,
            _ => answer(&words, &mut way)?,
        }
    }
}

/// Reads an array of strings.
fn request(from: &mut impl BufRead) -> std::io::Result<Vec<String>> {
    let number = |from: &mut dyn BufRead| -> std::io::Result<usize> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        line.trim_start_matches(['*', '$']).trim().parse().map_err(std::io::Error::other)
    };
    let count = number(from)?;
    let mut word = || -> std::io::Result<String> {
        let mut bytes = vec![0; number(from)? + 2];
        from.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        String::from_utf8(bytes).map_err(std::io::Error::other)
    };
    (0..count).map(|_| word()).collect()
}

/// Answers a lock with a beginning, and then with more of the same forever.
fn a_reply_ends_the_connection(beginning: &'static [u8], more: &'static [u8], most: u64) {
    let server = Hostile::start(true, move |_, way| {
        way.say(beginning)?;
        way.say_for_ever(more)
    });
    let beginning = String::from_utf8_lossy(&beginning[..beginning.len().min(40)]);
    block_on(async {
        let locker = server.connect().await.expect("connected");
        // Whoever else has asked over that connection is told the same.
        let [one, other] = ["L", "M"].map(|name| locker.mutex(name).try_lock());
        let (one, other) = must("an error", async { tokio::join!(one, other) }).await;
        for error in [one, other].map(|answer| answer.expect_err("no lock")) {
            assert_eq!((error.fault(), error.is_transient()), (Some(Fault::Protocol), false), "{beginning:?}: {error}");
            assert!(error.to_string().contains("more than a reply may have"), "{beginning:?}: {error}");
        }
        drop(locker);
    });
    let taken = server.taken();
    assert!(taken <= 2 * (most + ON_THE_WAY), "{beginning:?}: {taken} bytes");
}

pub(crate) fn an_endless_text_ends_the_connection() {
    a_reply_ends_the_connection(b"$9000000000\r\n", b"0123456789abcdef", 0);
    a_reply_ends_the_connection(b"*1\r\n$9223372036854775807\r\n", b"0123456789abcdef", 0);
    a_reply_ends_the_connection(b"=9000000000\r\ntxt:", b"0123456789abcdef", 0);
    a_reply_ends_the_connection(b"!9000000000\r\nERR ", b"0123456789abcdef", 0);
    // Below zero is no length for these.
    a_reply_ends_the_connection(b"=-1\r\n", b"0123456789abcdef", 0);
}

pub(crate) fn an_endless_line_ends_the_connection() {
    a_reply_ends_the_connection(b"+", b"0123456789abcdef", 0);
    a_reply_ends_the_connection(b"-ERR ", b"\n+\n+\n+\n", 0);
    a_reply_ends_the_connection(b":", b"0", 0);
    a_reply_ends_the_connection(b"$", b"0", 0);
}

pub(crate) fn an_endless_list_ends_the_connection() {
    a_reply_ends_the_connection(b"*9223372036854775807\r\n", b":1\r\n", 0);
    a_reply_ends_the_connection(b"~2147483647\r\n", b":1\r\n", 0);
    a_reply_ends_the_connection(b"%9223372036854775807\r\n", b":1\r\n", 0);
    a_reply_ends_the_connection(b"|4611686018427387904\r\n", b":1\r\n", 0);
    // Each announces what is allowed, and all together much more.
    a_reply_ends_the_connection(b"*1000000\r\n", b"*1000\r\n", 0);
    a_reply_ends_the_connection(b"*100000\r\n", b"$1000\r\n0123456789\r\n", REPLY);
}

pub(crate) fn an_endless_push_ends_the_connection() {
    a_reply_ends_the_connection(b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$9000000000\r\n", b"0123456789abcdef", 0);
    a_reply_ends_the_connection(b">9000000000\r\n$10\r\ninvalidate\r\n", b":1\r\n", 0);
    a_reply_ends_the_connection(b">2\r\n$10\r\ninvalidate\r\n*1000000\r\n", b"$10\r\n0123456789\r\n", PUSH);
}

pub(crate) fn lists_in_lists_without_end_end_the_connection() {
    for opens in [&b"*1\r\n"[..], b"%1\r\n+k\r\n", b"~1\r\n", b"|1\r\n+k\r\n", b">2\r\n+k\r\n"] {
        a_reply_ends_the_connection(opens, opens, 0);
    }
}

pub(crate) fn a_greeting_without_end_is_an_error() {
    for beginning in [&b"%1000000000\r\n"[..], b"$9000000000\r\n", b"*1\r\n"] {
        let server = Hostile::start(false, move |_, way| {
            way.say(beginning)?;
            way.say_for_ever(beginning)
        });
        let error = block_on(must("an error", server.connect())).expect_err("no server");
        assert_eq!(error.fault(), Some(Fault::Protocol), "{error}");
        assert!(server.taken() <= ON_THE_WAY);
    }
}

/// Replies that are large, and still allowed, come through.
pub(crate) fn a_large_reply_is_read() {
    let server = Hostile::start(true, |words, way| {
        if words[0] != "EVALSHA" {
            return way.say(b"*0\r\n");
        }
        let note = "n".repeat(1 << 20);
        way.say(
            format!("*7\r\n:1\r\n_\r\n_\r\n*8\r\n{}_\r\n_\r\n*0\r\n", format!("${}\r\n{note}\r\n", note.len()).repeat(8))
                .as_bytes(),
        )
    });
    block_on(async {
        let locker = server.connect().await.expect("connected");
        let state = must("an answer", locker.mutex("L").inspect()).await.expect("read");
        assert_eq!((state.queue.len(), state.queue[7].len()), (8, 1 << 20));
    });
}

/// A cursor that never comes back to its beginning, with names or without.
pub(crate) fn a_scan_without_end_is_an_error() {
    for (cursor, names) in [(Some("7"), 0), (None, 0), (Some("7"), 1000), (None, 1000)] {
        let (rounds, said) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&rounds);
        let server = Hostile::start(true, move |words, way| {
            if words[0] != "EVALSHA" && words[0] != "SCAN" {
                return way.say(b"*0\r\n");
            }
            let round = counted.fetch_add(1, Ordering::Relaxed);
            let cursor = cursor.map_or_else(|| (round + 1).to_string(), str::to_owned);
            let mut answer = format!("*2\r\n${}\r\n{cursor}\r\n*{names}\r\n", cursor.len());
            for _ in 0..names {
                let name = format!("name-{}", said.fetch_add(1, Ordering::Relaxed));
                answer.push_str(&format!("${}\r\n{name}\r\n", name.len()));
            }
            way.say(answer.as_bytes())
        });
        let error = block_on(async {
            let locker = server.connect().await.expect("connected");
            must("an error", locker.list("")).await.expect_err("no end")
        });
        let text = error.to_string();
        assert!(text.contains("cursor") || text.contains("longer prefix"), "{cursor:?}, {names}: {error}");
        assert!(rounds.load(Ordering::Relaxed) <= 1_100_000, "{rounds:?}");
        drop(server);
    }
}

/// A flood of small pushes is no reply, and takes no room.
pub(crate) fn a_flood_of_pushes_is_read_and_forgotten() {
    let server = Hostile::start(true, |_, way| {
        let push = b">3\r\n$7\r\nmessage\r\n$1\r\nx\r\n$1\r\n0\r\n".repeat(10_000);
        for _ in 0..20 {
            way.say(&push)?;
        }
        way.say(b"*2\r\n:1\r\n$3\r\n123\r\n")
    });
    block_on(async {
        let locker = server.connect().await.expect("connected");
        let guard = must("a lock", locker.mutex("L").try_lock()).await.expect("asked").expect("locked");
        assert_eq!(guard.token().get(), 123);
        std::mem::drop(tokio::time::timeout(Duration::from_secs(1), guard.release()).await);
    });
}
