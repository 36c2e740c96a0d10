//! From `quorum:first|second|third`, or from options in code, to a quorum.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::node::Open;
use super::{NAME, Quorum, Settings};
use crate::backend::Opened;
use crate::error::{Error, Result};
use crate::store::{Address, Context, Opening, Scheme, Sealed, StoreOptions};

/// The options after the last node that are none of these are those of every node.
pub(crate) static SCHEMES: [Scheme; 1] = [Scheme::new(NAME, open).nodes().options(&["node_timeout", "quarantine"])];

/// Three, five or seven independent stores that make one lock.
///
/// ```no_run
/// use tenure::options::{QuorumOptions, RedisOptions};
///
/// # async fn example() -> tenure::Result<()> {
/// let nodes = ["a", "b", "c"].map(|host| RedisOptions::server(host, 6379));
/// let locker = tenure::Locker::builder().connect_with(QuorumOptions::new(nodes)).await?;
/// # locker.close().await
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "options do nothing until a locker connects with them"]
pub struct QuorumOptions {
    nodes: Vec<Arc<dyn StoreOptions>>,
    node_timeout: Option<Duration>,
    quarantine: bool,
}

impl QuorumOptions {
    /// A quorum of these stores.
    pub fn new(nodes: impl IntoIterator<Item = impl StoreOptions>) -> Self {
        let nodes = nodes.into_iter().map(|node| -> Arc<dyn StoreOptions> { Arc::new(node) }).collect();
        Self { nodes, node_timeout: None, quarantine: true }
    }

    /// One more node, perhaps of another kind.
    pub fn node(mut self, node: impl StoreOptions) -> Self {
        self.nodes.push(Arc::new(node));
        self
    }

    /// The longest that one call to one node may take, up to the timeout of the locker.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = Some(timeout);
        self
    }

    /// Counts the votes of nodes that have restarted at once, although they may have forgotten earlier votes: only where every node keeps what it
    /// has granted on its disk.
    pub fn without_quarantine(mut self) -> Self {
        self.quarantine = false;
        self
    }

    async fn start(self, context: Context) -> Result<Opened> {
        let Context { clock, timeout, lease, drift, .. } = context.clone();
        let mut settings = Settings { clock, timeout, lease, drift, quarantine: self.quarantine, ..Settings::default() };
        if let Some(node_timeout) = self.node_timeout {
            if node_timeout.is_zero() || node_timeout > timeout {
                let allowed = format!("more than zero, up to the timeout of {timeout:?}");
                return Err(Error::config("the option \"node_timeout\"", "is out of range", allowed));
            }
            settings.node_timeout = node_timeout;
        }
        if self.nodes.iter().any(|node| node.scheme() == NAME) {
            return Err(Error::config("a node of a quorum", "is a quorum itself", "independent servers, each once"));
        }
        let nodes = self.nodes.into_iter().enumerate().map(|(i, node)| {
            let name = match node.place() {
                Some(place) => format!("{}:{}", node.scheme(), place.trim_end_matches('/')),
                None => format!("{}: {}", node.scheme(), i + 1),
            };
            (name, opener(i, node, context.clone()))
        });
        Ok(Arc::new(Quorum::connect(nodes.collect(), settings).await?).into())
    }
}

impl Sealed for QuorumOptions {}

impl StoreOptions for QuorumOptions {
    fn scheme(&self) -> &'static str {
        NAME
    }

    fn place(&self) -> Option<String> {
        let nodes = self.nodes.iter().map(|node| Some(format!("{}:{}", node.scheme(), node.place()?)));
        let mut nodes: Vec<String> = nodes.collect::<Option<_>>()?;
        // The order in which they are listed says nothing.
        nodes.sort_unstable();
        Some(nodes.join("|"))
    }

    fn open(&self, context: Context) -> Opening {
        Box::pin(self.clone().start(context))
    }
}

/// A node that a URL names. The URL may hold a password.
struct Node {
    scheme: &'static str,
    place: Option<String>,
    url: String,
}

impl Sealed for Node {}

impl StoreOptions for Node {
    fn scheme(&self) -> &'static str {
        self.scheme
    }

    fn place(&self) -> Option<String> {
        self.place.clone()
    }

    fn open(&self, context: Context) -> Opening {
        match (context.registry.read)(&self.url) {
            Ok(target) => (context.registry.open)(target, context),
            Err(e) => Box::pin(async { Err(e) }),
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("scheme", &self.scheme).field("place", &self.place).finish_non_exhaustive()
    }
}

/// Opens `quorum:`.
fn open(address: Address, context: Context) -> Opening {
    Box::pin(async move { read(address, &context)?.start(context).await })
}

fn read(address: Address, context: &Context) -> Result<QuorumOptions> {
    let Address { place, mut options, .. } = address;
    let node_timeout = options.duration("node_timeout")?;
    let quarantine = options.one_of("quarantine", &[("on", true), ("off", false)])?.unwrap_or(true);
    if !place.contains('|') {
        // That is what a shell leaves of a URL without quotes.
        let fix = "3, 5 or 7 nodes with | between them, and in a shell quotes around the URL";
        return Err(Error::config("a quorum of one node", "is no quorum", fix));
    }
    let mut nodes: Vec<Arc<dyn StoreOptions>> = Vec::new();
    for (i, url) in place.split('|').enumerate() {
        if url.is_empty() {
            let asked = format!("node {} of the quorum", i + 1);
            return Err(Error::config(asked, "is empty", "URLs with one | between them"));
        }
        let target = (context.registry.read)(url)?;
        if target.scheme.fails_over {
            return Err(fails_over(i));
        }
        if let Some(option) = target.address.options.first_common() {
            let asked = format!("the option {option:?} of one node");
            return Err(Error::config(asked, "concerns all of them", "after the last node, for the whole quorum"));
        }
        let scheme = target.scheme.name;
        let place = target.label.map(|label| label.address[scheme.len() + 1..].to_owned());
        nodes.push(Arc::new(Node { scheme, place, url: url.to_owned() }));
    }
    Ok(QuorumOptions { nodes, node_timeout, quarantine })
}

fn fails_over(node: usize) -> Error {
    let problem = "fails over to another server, which may not have its votes";
    Error::config(format!("node {} of the quorum", node + 1), problem, "independent servers, each once")
}

/// Opens one node, when it can be reached. Its lifeline goes: one of several says nothing for all.
fn opener(node: usize, options: Arc<dyn StoreOptions>, context: Context) -> Box<Open> {
    Box::new(move || {
        let opening = options.open(context.clone());
        Box::pin(async move {
            let opened = opening.await?;
            let capabilities = opened.backend().capabilities();
            if capabilities.fails_over {
                return Err(fails_over(node));
            }
            let what = || "being a node of a quorum".to_owned();
            opened.voter().cloned().ok_or_else(|| Error::Unsupported { backend: capabilities.backend, what: what() })
        })
    })
}
