//! Generated answers and keys of servers. See the module `fuzz`.

mod replies;
mod server;

use std::time::Duration;

pub(crate) use self::replies::{replies, sentinels};
use super::frames::Frames;
use super::keys::{self, Layout};
use super::link::{Endpoint, Link};
use super::map::{Map, Node};
use super::open::read;
use super::reserved::refuse_reserved;
use super::shared::Shared;
use super::slots::{Address, ranges, redirected, slot_of, slot_of_name};
use crate::error::Result;
use crate::name::{ClientId, OwnerId, Resource};
use crate::secret::CANARY;
use crate::store;

/// Reads what stands in a URL, up to where a connection would be made. Files are not opened.
pub(crate) fn options(address: store::Address) -> Result<()> {
    let mut address = address;
    if ["ca", "cert", "key", "pass_file", "sentinel_pass_file"].iter().any(|option| address.options.take(option).is_some()) {
        return Ok(());
    }
    let redis = read(address)?;
    redis.confirmed(Duration::from_secs(3))?;
    // Not the servers and the master, which are shown, and may be named so.
    let shown = format!("{:?} {:?} {:?}", redis.dial(), redis.login, redis.sentinel_login);
    assert!(!shown.contains(CANARY), "{shown}");
    Ok(())
}

/// What a cluster says of its slots, and where it sends a question on to.
pub(crate) fn slots(data: &[u8]) {
    let asked: Address = ("asked".to_owned(), 7000);
    if let Ok(to) = str::from_utf8(data)
        && let Some((host, port)) = redirected(to, &asked)
    {
        let digits = to.rsplit_once(':').map(|(_, digits)| digits.trim_start_matches(['+', '0']));
        assert!(!host.is_empty() && (port == 0 || digits == Some(&port.to_string())), "{to:?}");
    }
    let Ok(answer) = redis::parse_redis_value(data) else { return };
    let Some(view) = ranges(&answer, &asked) else { return };
    server::run(async {
        let (shared, client) = (Shared::new(Duration::from_secs(1), Layout::Redisson, None), server::at("/nowhere".into()));
        let make = |address: &Address| {
            let link = Link::new(Endpoint::Fixed(client.clone()), &shared);
            Node { address: address.clone(), link }
        };
        let Ok(map) = Map::new(&view, &[], make) else { return };
        for range in &view {
            assert!(range.first <= range.last && range.last < super::slots::SLOTS);
        }
        // The last word on a slot counts.
        for slot in view.iter().flat_map(|range| [range.first, range.last]) {
            let last = view.iter().rev().find(|range| (range.first..=range.last).contains(&slot) && !range.nodes.is_empty());
            assert_eq!(map.owner(slot).map(|node| &node.address), last.map(|range| &range.nodes[0]));
        }
        let again = Map::new(&view, &map.nodes.iter().collect::<Vec<_>>(), make).expect("the same view");
        assert_eq!(again.differs(&map), 0);
    });
}

/// Names become keys and come back from them, all keys of a lock are in one slot, and no two names share one.
pub(crate) fn keys(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    // Whatever is on a server, reading its name does no harm.
    for layout in [Layout::Redisson, Layout::Plain] {
        assert!(!layout.channels_of_key(text).is_empty());
    }
    for counter in [false, true] {
        let _name: Option<&str> = keys::name_of_permits(text, counter);
    }
    let _owned: bool = keys::is_owned(text);
    let Ok(name) = Resource::new(text) else { return };
    let owner = OwnerId { client: ClientId::random().expect("random bits"), number: 7 };
    for layout in [Layout::Redisson, Layout::Plain] {
        comes_back(&name, keys::unprefixed(layout.token_prefix(), &layout.token(&name).to_string()));
    }
    for counter in [false, true] {
        comes_back(&name, keys::name_of_permits(&keys::held_permits(&name, counter), counter));
    }
    assert!(keys::is_owned(&format!("{}:{owner}", Layout::Redisson.channel(&name))));
    let Ok(slot) = slot_of_name(&name) else { return };
    let mut all = vec![
        Layout::Redisson.token(&name).to_string(),
        Layout::Plain.token(&name).to_string(),
        keys::note(&name),
        keys::notes(&name),
    ];
    all.extend([keys::writers(&name), keys::share(&name, owner), keys::latch_mark(&name, owner)]);
    all.extend([keys::held_permits(&name, false), keys::held_permits(&name, true)]);
    all.extend(keys::queue(&name));
    for key in all {
        assert_eq!(slot_of(&key), slot, "{key:?} of {text:?}");
        assert!(
            Resource::new(&key).is_ok_and(|key| refuse_reserved(&key).is_err()) || key.len() > Resource::MAX_BYTES,
            "{key:?}"
        );
    }
}

/// A key leads back to its name. By Redisson's rule `{a}` as a name has the same keys as `a`.
fn comes_back(name: &Resource, found: Option<&str>) {
    let name = name.as_str();
    let bare = name.strip_prefix('{').and_then(|n| n.strip_suffix('}')).filter(|bare| !bare.contains('{'));
    assert_eq!(found, Some(bare.unwrap_or(name)), "of {name:?}");
}

/// Where replies end is known as redis-rs knows it, however they arrive: else a server could hide one that never ends.
pub(crate) fn frames(data: &[u8]) {
    let (cut, stream) = data.split_first().map_or((1, data), |(cut, rest)| (usize::from(*cut).max(1), rest));
    let (mut whole, mut pieces) = (Frames::default(), Frames::default());
    let passed = whole.pass(stream);
    assert_eq!(passed, stream.chunks(cut).try_for_each(|piece| pieces.pass(piece)), "in pieces of {cut}");
    let mut frames = Frames::default();
    let ends = |byte: &u8| frames.pass(&[*byte]).map_or(Some(None), |()| frames.is_between().then_some(Some(())));
    let mut ends = stream.iter().map(ends).enumerate();
    // Up to its end, or to where the connection ends.
    let Some(end) = ends.find_map(|(at, end)| end.map(|end| end.map(|()| at + 1))).flatten() else { return };
    let reads = |end: usize| redis::parse_redis_value(&stream[..end]);
    assert!((1..end).all(|earlier| reads(earlier).is_err()), "read before its end at {end}");
    // What redis-rs cannot read ends the connection; it must not wait for more.
    if let Err(error) = reads(end) {
        assert!(!error.is_io_error(), "{error} after {end}");
    }
}
