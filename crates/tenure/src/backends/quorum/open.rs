//! From `quorum:first|second|third` to a quorum.

use std::sync::Arc;

use super::node::Open;
use super::{NAME, Quorum, Settings};
use crate::error::Error;
use crate::store::{Address, Context, Opening, Scheme};

/// The options after the last node that are none of these are those of every node.
pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).nodes().options(&["node_timeout", "quarantine"])];

/// Opens `quorum:`.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move {
        let Address { place, mut options, .. } = address;
        let Context { clock, timeout, lease, drift, .. } = context.clone();
        let mut settings = Settings { clock, timeout, lease, drift, ..Settings::default() };
        if let Some(node_timeout) = options.duration("node_timeout")? {
            if node_timeout.is_zero() || node_timeout > timeout {
                return Err(Error::config(
                    "the option \"node_timeout\"",
                    "is out of range",
                    format!("more than zero, up to the timeout of {timeout:?}"),
                ));
            }
            settings.node_timeout = node_timeout;
        }
        settings.quarantine = options.one_of("quarantine", &[("on", true), ("off", false)])?.unwrap_or(true);
        if !place.contains('|') {
            // That is what a shell leaves of a URL without quotes.
            let fix = "3, 5 or 7 nodes with | between them, and in a shell quotes around the URL";
            return Err(Error::config("a quorum of one node", "is no quorum", fix));
        }
        let mut nodes = Vec::new();
        for (i, url) in place.split('|').enumerate() {
            if url.is_empty() {
                let asked = format!("node {} of the quorum", i + 1);
                return Err(Error::config(asked, "is empty", "URLs with one | between them"));
            }
            let target = (context.registry.read)(url)?;
            if target.scheme.fails_over {
                return Err(fails_over(i));
            }
            if target.is_quorum() {
                return Err(Error::config("a node of a quorum", "is a quorum itself", "independent servers, each once"));
            }
            if let Some(option) = target.address.options.first_common() {
                let asked = format!("the option {option:?} of one node");
                return Err(Error::config(asked, "concerns all of them", "after the last node, for the whole quorum"));
            }
            let name = target.label.map_or_else(|| format!("{}: {}", target.scheme.name, i + 1), |label| label.address);
            nodes.push((name.trim_end_matches('/').to_owned(), opener(i, url.to_owned(), context.clone())));
        }
        Ok(Arc::new(Quorum::connect(nodes, settings).await?).into())
    })
}

fn fails_over(node: usize) -> Error {
    let problem = "fails over to another server, which may not have its votes";
    Error::config(format!("node {} of the quorum", node + 1), problem, "independent servers, each once")
}

/// Opens one node, when it can be reached. Its lifeline goes: one of several says nothing for all.
fn opener(node: usize, url: String, context: Context) -> Box<Open> {
    Box::new(move || {
        let (url, context) = (url.clone(), context.clone());
        Box::pin(async move {
            let registry = context.registry;
            let opened = (registry.open)((registry.read)(&url)?, context).await?;
            let capabilities = opened.backend().capabilities();
            if capabilities.fails_over {
                return Err(fails_over(node));
            }
            let what = || "being a node of a quorum".to_owned();
            opened.voter().cloned().ok_or_else(|| Error::Unsupported { backend: capabilities.backend, what: what() })
        })
    })
}
