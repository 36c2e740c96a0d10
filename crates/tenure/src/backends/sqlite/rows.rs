//! Holds and waiters as the file has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{OptionalExtension, Row, params};

use super::verbs::Verbs;
use crate::backend::{Holder, Mode};
use crate::backends::decision::Turn;
use crate::clock::Instant;
use crate::name::{ClientId, Token};

pub(super) struct Hold {
    pub(super) owner: String,
    /// `None`: it cannot have pipes, so its lease decides.
    pub(super) client: Option<ClientId>,
    pub(super) mode: Mode,
    pub(super) until: Instant,
    pub(super) token: Token,
    pub(super) last: Token,
    note: Option<String>,
    /// By the wall clock, in microseconds. `None` in rows that a program without this column has written.
    since: Option<i64>,
}

/// What [`Hold::read`] reads.
macro_rules! hold_columns {
    () => {
        "owner, client, kind, take, until, token, last, note, since"
    };
}
pub(super) use hold_columns;

/// The waiters of the name `?1` that have not ended at `?2`, first come first: what [`Waiter::read`] reads.
macro_rules! select_waiters {
    ($which:literal, $limit:literal) => {
        concat!(
            "SELECT place, owner, client, kind, take, until FROM waiters WHERE name = ?1 AND until > ?2",
            $which,
            " AND of_this_boot(boot, client) ORDER BY place",
            $limit
        )
    };
}
pub(super) use select_waiters;

impl Hold {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            owner: row.get(0)?,
            client: read_client(row, 1)?,
            mode: read_mode(row, 2)?,
            until: Instant::from_nanos(unsigned(row.get(4)?)),
            token: Token::new(unsigned(row.get(5)?)),
            last: Token::new(unsigned(row.get(6)?)),
            note: row.get(7)?,
            since: row.get(8)?,
        })
    }

    pub(super) fn show(self, now: Instant) -> Holder {
        Holder {
            owner: self.owner,
            mode: self.mode,
            token: Some(self.last),
            since: self.since.and_then(|micros| UNIX_EPOCH.checked_add(Duration::from_micros(unsigned(micros)))),
            expires_in: Some(self.until.since(now)),
            note: self.note,
        }
    }
}

pub(super) struct Waiter {
    pub(super) position: i64,
    pub(super) owner: String,
    /// As that of a hold.
    pub(super) client: Option<ClientId>,
    pub(super) mode: Mode,
    /// As a writer has it.
    turn: i64,
    pub(super) until: Instant,
}

impl Waiter {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            position: row.get(0)?,
            owner: row.get(1)?,
            client: read_client(row, 2)?,
            mode: read_mode(row, 3)?,
            turn: row.get(4)?,
            until: Instant::from_nanos(unsigned(row.get(5)?)),
        })
    }
}

/// Whose turn it is, as the queued writers have it.
pub(super) fn turn_of(queue: &[Waiter]) -> Turn {
    match queue.iter().filter(|waiter| waiter.mode == Mode::Write).map(|writer| unsigned(writer.turn)).max() {
        None | Some(0) => Turn::Open,
        Some(1) => Turn::Writers,
        Some(end) => Turn::WritersUntil(Instant::from_nanos(end)),
    }
}

/// How that is written: in a column that writers have no other use for.
pub(super) fn written_turn(turn: Turn) -> i64 {
    match turn {
        Turn::Open => 0,
        Turn::Writers => 1,
        Turn::WritersUntil(end) => signed(end.as_nanos()),
    }
}

/// What the file says of a name's holds.
pub(super) struct Stored {
    pub(super) holds: Vec<Hold>,
    /// Whether there are some that have run out.
    pub(super) lapsed: bool,
}

impl Verbs<'_> {
    pub(super) fn stored(&self, name: &str, now: Instant) -> rusqlite::Result<Stored> {
        let sql = concat!("SELECT ", hold_columns!(), ", until > ?2 AND of_this_boot(boot, client) FROM holds WHERE name = ?1");
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query(params![name.as_bytes(), signed(now.as_nanos())])?;
        let mut stored = Stored { holds: Vec::new(), lapsed: false };
        while let Some(row) = rows.next()? {
            if row.get(9)? {
                stored.holds.push(Hold::read(row)?);
            } else {
                stored.lapsed = true;
            }
        }
        Ok(stored)
    }

    /// The waiters that decide on a claim, first come first. A fair queue may be long: its first and the one before this owner are
    /// enough.
    pub(super) fn queue_before(&self, mode: Mode, name: &str, owner: &str, now: Instant) -> rusqlite::Result<Vec<Waiter>> {
        let sql = match mode {
            Mode::Fair => {
                "SELECT place, owner, client, kind, take, until FROM
                     (SELECT * FROM waiters WHERE name = ?1 AND until > ?2 AND kind = 1 AND of_this_boot(boot, client)
                      ORDER BY place LIMIT 1)
                 UNION
                 SELECT place, owner, client, kind, take, until FROM
                     (SELECT * FROM waiters WHERE name = ?1 AND until > ?2 AND kind = 1 AND place <
                         coalesce((SELECT place FROM waiters WHERE owner = ?3 AND name = ?1), 9223372036854775807)
                      AND of_this_boot(boot, client) ORDER BY place DESC LIMIT 1)
                 ORDER BY place"
            }
            Mode::Read => select_waiters!(" AND kind = 3 AND owner <> ?3", ""),
            _ => return Ok(Vec::new()),
        };
        let mut statement = self.tx.prepare_cached(sql)?;
        let params = params![name.as_bytes(), signed(now.as_nanos()), owner];
        statement.query_map(params, Waiter::read)?.collect()
    }

    /// Tells all queued writers whose turn it is.
    pub(super) fn set_turn(&self, name: &str, turn: Turn) -> rusqlite::Result<()> {
        let sql = "UPDATE waiters SET take = ?2 WHERE name = ?1 AND kind = 3 AND take <> ?2";
        self.run(sql, params![name.as_bytes(), written_turn(turn)]).map(drop)
    }

    /// The first in a fair queue, dead or alive.
    pub(super) fn first_fair(&self, name: &str, now: Instant) -> rusqlite::Result<Option<Waiter>> {
        let sql = select_waiters!(" AND kind = 1", " LIMIT 1");
        let params = params![name.as_bytes(), signed(now.as_nanos())];
        self.tx.prepare_cached(sql)?.query_row(params, Waiter::read).optional()
    }

    /// All that wait for a hold, first come first, dead or alive.
    pub(super) fn queue(&self, name: &str, now: Instant) -> rusqlite::Result<Vec<Waiter>> {
        let mut statement = self.tx.prepare_cached(select_waiters!("", ""))?;
        let rows = statement.query_map(params![name.as_bytes(), signed(now.as_nanos())], Waiter::read)?;
        rows.filter(|waiter| waiter.as_ref().map_or(true, |w| w.mode.holds())).collect()
    }
}

/// How a mode is written. What neither holds nor waits is never stored.
pub(super) fn written(mode: Mode) -> (i64, i64) {
    match mode {
        Mode::Exclusive => (0, 0),
        Mode::Fair => (1, 0),
        Mode::Read | Mode::Downgrade => (2, 0),
        Mode::Write => (3, 0),
        Mode::Permits { take, .. } => (4, take.into()),
        Mode::Resize { .. } | Mode::SetCount { .. } | Mode::CountDown | Mode::CountZero | Mode::RemoveCount => (5, 0),
    }
}

/// Parsed before it is used: names of files are made of it.
pub(super) fn read_client(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<ClientId>> {
    Ok(row.get_ref(at)?.as_str()?.parse().ok())
}

fn read_mode(row: &Row<'_>, at: usize) -> rusqlite::Result<Mode> {
    let (kind, take): (i64, i64) = (row.get(at)?, row.get(at + 1)?);
    match kind {
        0 => Ok(Mode::Exclusive),
        1 => Ok(Mode::Fair),
        2 => Ok(Mode::Read),
        3 => Ok(Mode::Write),
        4 => match u32::try_from(take) {
            Ok(take) => Ok(Mode::Permits { take, of: 0 }),
            Err(_) => Err(rusqlite::Error::IntegralValueOutOfRange(at + 1, take)),
        },
        5 => Ok(Mode::CountZero),
        _ => Err(rusqlite::Error::IntegralValueOutOfRange(at, kind)),
    }
}

/// The wall clock, for people only.
pub(super) fn now_micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

pub(super) fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}
