//! Hash slots: which part of a cluster keeps a key, and what the cluster says about their servers.

use redis::Value;

use super::reply::{field, int, text};
use crate::error::{Error, Result};
use crate::name::Resource;

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16384;

/// Where a server is, as others reach it.
pub(super) type Address = (String, u16);

/// The slot of a key: of its hash tag, if it has one.
pub(crate) fn slot_of(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag(key).unwrap_or(key).as_bytes()) % SLOTS
}

/// What stands between the first brace and the next closing one, unless that is nothing.
pub(crate) fn tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    rest.split_once('}').map(|(tag, _)| tag).filter(|tag| !tag.is_empty())
}

/// The slot of a lock. By Redisson's rule a name with a brace brings its own hash tag, so a brace that makes none would
/// put the lock and its token into different slots.
pub(super) fn slot_of_name(name: &Resource) -> Result<u16> {
    let text = name.as_str();
    if text.contains(['{', '}']) && (tag(text).is_none() || !text.contains('{')) {
        let problem = "has braces that would spread its keys over several slots of the cluster";
        return Err(Error::config(format!("the name {text:?}"), problem, "names without braces, or with a {tag} in them"));
    }
    Ok(slot_of(text))
}

/// A row of `CLUSTER SLOTS`: a range of slots and its servers, the master first. No servers, if the row has no usable address of the
/// master.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u16,
    pub(super) last: u16,
    pub(super) nodes: Vec<Address>,
}

/// Reads the answer to `CLUSTER SLOTS`; a node that does not know its own address is where it was `asked`.
pub(super) fn ranges(answer: &Value, asked: &Address) -> Option<Vec<Range>> {
    let Value::Array(rows) = answer else { return None };
    rows.iter().map(|row| range(row, asked)).collect()
}

fn range(row: &Value, asked: &Address) -> Option<Range> {
    let Value::Array(row) = row else { return None };
    let [first, last, nodes @ ..] = &**row else { return None };
    let slot = |value| int(value).and_then(|n| u16::try_from(n).ok()).filter(|n| *n < SLOTS);
    let node = |node: &Value| {
        let Value::Array(parts) = node else { return None };
        let [host, port, ..] = &**parts else { return None };
        let host = match (host, text(host)) {
            (Value::Nil, _) | (_, Some("")) => asked.0.clone(),
            // It should announce a name and does not.
            (_, Some("?")) => parts.get(3).and_then(|more| field(more, "ip")).and_then(text)?.to_owned(),
            (_, None) => return None,
            (_, Some(host)) => host.to_owned(),
        };
        Some((host, int(port).and_then(|port| u16::try_from(port).ok())?))
    };
    let (master, replicas) = nodes.split_first()?;
    let nodes = match node(master) {
        Some(master) => std::iter::once(master).chain(replicas.iter().filter_map(node)).collect(),
        None => Vec::new(),
    };
    let (first, last) = (slot(first)?, slot(last)?);
    (first <= last).then_some(Range { first, last, nodes })
}

/// Reads `host:port` of a redirection; without a host it is another port of the server that said so.
pub(super) fn redirected(to: &str, from: &Address) -> Option<Address> {
    let (host, port) = to.rsplit_once(':').filter(|(host, _)| *host != "?")?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    Some((if host.is_empty() { from.0.clone() } else { host.to_owned() }, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> Resource {
        Resource::new(name).expect("a name")
    }

    #[test]
    fn slots_are_those_of_redis() {
        // As CLUSTER KEYSLOT answers.
        for (key, slot) in [("L", 2376), ("{a}b", 15495), ("a}b", 7866), ("a{b", 13340), ("{}x", 10595), ("", 0), ("a", 15495)] {
            assert_eq!(slot_of(key), slot, "{key}");
        }
    }

    #[test]
    fn names_whose_keys_would_be_in_several_slots_are_refused() {
        for good in ["L", "{a}b", "x{a}b", "{a}{b}", "{a}b}", "a:b"] {
            assert_eq!(slot_of_name(&name(good)).expect(good), slot_of(good));
        }
        for bad in ["a}b", "a{b", "{}x", "}", "{", "}{", "{}{a}"] {
            let error = slot_of_name(&name(bad)).expect_err(bad).to_string();
            assert!(error.contains("slots") && error.contains("{tag}"), "{error}");
        }
    }

    #[test]
    fn the_answer_of_a_cluster_is_read_whatever_it_is() {
        let bulk = |text: &str| Value::BulkString(text.into());
        let node = |host, port| Value::Array(vec![host, Value::Int(port), bulk("id"), Value::Array(vec![])]);
        let row = |nodes: Vec<Value>| Value::Array([vec![Value::Int(0), Value::Int(5460)], nodes].concat());
        let asked = ("asked".to_owned(), 1);
        let nameless =
            Value::Array(vec![bulk("?"), Value::Int(10), bulk("id"), Value::Array(vec![bulk("ip"), bulk("10.0.0.1")])]);
        let unknown = row(vec![node(bulk("?"), 7), node(bulk("h1"), 7)]);
        let rows = Value::Array(vec![row(vec![node(bulk("h1"), 7), node(Value::Nil, 8), node(bulk("?"), 9), nameless]), unknown]);
        let nodes = vec![("h1".to_owned(), 7), ("asked".to_owned(), 8), ("10.0.0.1".to_owned(), 10)];
        let nobody = Range { first: 0, last: 5460, nodes: Vec::new() };
        assert_eq!(
            ranges(&rows, &asked),
            Some(vec![Range { first: 0, last: 5460, nodes }, nobody]),
            "one is no reason to drop all"
        );
        for odd in [
            Value::Nil,
            Value::Array(vec![Value::Nil]),
            Value::Array(vec![row(vec![])]),
            Value::Array(vec![Value::Array(vec![Value::Int(9), Value::Int(8), node(bulk("h"), 1)])]),
            Value::Array(vec![Value::Array(vec![Value::Int(0), Value::Int(16384), node(bulk("h"), 1)])]),
        ] {
            assert_eq!(ranges(&odd, &asked), None, "{odd:?}");
        }
        assert_eq!(redirected("10.0.0.1:7001", &asked), Some(("10.0.0.1".to_owned(), 7001)));
        assert_eq!(redirected("[::1]:7001", &asked), Some(("::1".to_owned(), 7001)));
        assert_eq!(redirected(":7001", &asked), Some(("asked".to_owned(), 7001)));
        assert_eq!(redirected("nonsense", &asked), None);
        assert_eq!(redirected("?:7001", &asked), None);
    }
}
