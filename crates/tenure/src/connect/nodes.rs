//! URLs of several stores: `quorum:first|second|third?options`.

use super::table;
use crate::error::{Error, Result};
use crate::store::{Address, COMMON, Form, Label, Options, Scheme, Target, key, misplaced};

pub(super) fn parse(scheme: &'static Scheme, rest: &str) -> Result<Target> {
    // What looks like options of all nodes may be the rest of a password, and its beginning a host or a port.
    let after_last = rest.rsplit('|').next().and_then(|last| last.split_once('?')).map_or("", |(_, query)| query);
    if rest.split('|').any(names_server) && at_in_plain_option(after_last) {
        return Err(misplaced(format!("an option of {}:", scheme.name)));
    }
    let (rest, query) = nodes_and_options(scheme, rest);
    if let Some(node) = rest.split('|').position(has_unknown_option) {
        let asked = format!("an option of node {} of {}:, or of all of them,", node + 1, scheme.name);
        let allowed = own_options(scheme).collect::<Vec<_>>().join(", ");
        return Err(Error::config(asked, "is unknown", format!("{allowed}, or those of its nodes")));
    }
    if let Some(node) = rest.split('|').position(|node| node.contains('@') && !names_server(node)) {
        return Err(misplaced(format!("node {} of {}:", node + 1, scheme.name)));
    }
    let options = Options::parse(&query, scheme)?;
    let label = label(scheme, &rest, &options);
    Ok(Target { scheme, address: Address { scheme: scheme.name, place: rest, credentials: None, options }, label })
}

fn own_options(scheme: &Scheme) -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(scheme.all_options())
}

/// Whether there is a place for a login in a node's URL.
fn names_server(node: &str) -> bool {
    let name = node.split_once(':').map_or("", |(name, _)| name);
    table().iter().any(|scheme| scheme.name == name && scheme.form == Form::Host)
}

fn at_in_plain_option(query: &str) -> bool {
    let table = table();
    let plain = |pair: &&str| !table.iter().any(|scheme| scheme.is_secret(key(pair)));
    query.split('&').filter(plain).any(|pair| pair.contains('@'))
}

/// What stands after the last node is the quorum's, or else said of each node that does not say it for itself.
fn nodes_and_options(scheme: &Scheme, rest: &str) -> (String, String) {
    let mut nodes: Vec<String> = rest.split('|').map(str::to_owned).collect();
    let last = nodes.pop().unwrap_or_default();
    let (last, query) = last.split_once('?').unwrap_or((&last, ""));
    nodes.push(last.to_owned());
    let is_ours = |pair: &&str| own_options(scheme).any(|known| known == key(pair));
    let (ours, of_nodes): (Vec<&str>, Vec<&str>) = query.split('&').filter(|pair| !pair.is_empty()).partition(is_ours);
    for node in &mut nodes {
        for pair in &of_nodes {
            let own = node.split_once('?').map_or("", |(_, own)| own);
            if !own.split('&').any(|own| !own.is_empty() && key(own) == key(pair)) {
                let sign = if own.is_empty() { '?' } else { '&' };
                *node = format!("{}{sign}{pair}", node.trim_end_matches('?'));
            }
        }
    }
    (nodes.join("|"), ours.join("&"))
}

/// Whether a node has an option that no store has.
fn has_unknown_option(node: &str) -> bool {
    let table = table();
    let is_known = |key: &str| table.iter().flat_map(|scheme| scheme.all_options()).chain(COMMON).any(|known| known == key);
    let query = node.split_once('?').map_or("", |(_, query)| query);
    query.split('&').filter(|pair| !pair.is_empty()).any(|pair| !is_known(key(pair)))
}

/// `None` if one of the nodes has none.
fn label(scheme: &Scheme, rest: &str, options: &Options) -> Option<Label> {
    // One that is such a URL itself is refused later, and is not followed down here.
    let is_nested = |node: &str| node.strip_prefix(scheme.name).is_some_and(|rest| rest.starts_with(':'));
    let read = |node: &str| if is_nested(node) { None } else { super::parse(node).ok() };
    let nodes = rest.split('|').map(|node| Some(read(node)?.label?.address));
    let mut nodes: Vec<String> = nodes.collect::<Option<_>>()?;
    // The order in which they are listed says nothing.
    nodes.sort_unstable();
    let prefix = options.get("prefix").unwrap_or_default().to_owned();
    Some(Label { address: format!("{}:{}", scheme.name, nodes.join("|")), prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_after_the_last_node_are_the_quorums_or_every_nodes() {
        let scheme = super::super::find("quorum").expect("built in");
        let split = |rest| nodes_and_options(scheme, rest);
        let owned = |(nodes, ours): (&str, &str)| (nodes.to_owned(), ours.to_owned());
        assert_eq!(split("redis://a|redis://b"), owned(("redis://a|redis://b", "")));
        let given = "redis://a?wake=pubsub|redis://b?|rediss://c/1?lease=3s&wake=tracking&quarantine=off&ca=x";
        let nodes = "redis://a?wake=pubsub&ca=x|redis://b?wake=tracking&ca=x|rediss://c/1?wake=tracking&ca=x";
        assert_eq!(split(given), owned((nodes, "lease=3s&quarantine=off")));
    }
}
