//! Deployments that are named in code.

use tenure::Locker;
use tenure::options::{Credentials, RedisOptions, StoreOptions};

use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::{block_on, connect};
use tenure_testkit::sentinel::SentinelSet;
use tenure_testkit::server::Login;

const SERVER: Login = Login { user: "app", pass: "s3rver" };
const SENTINEL: Login = Login { user: "watch", pass: "s3ntinel" };

/// A lock by options is busy for one by a URL, and the other way round.
async fn share(options: impl StoreOptions, url: &str) {
    let (coded, by_url) = (Locker::builder().connect_with(options).await.expect("connected"), connect(url).await);
    let guard = coded.mutex("L").lock().await.expect("locked");
    assert!(by_url.mutex("L").try_lock().await.expect("asked").is_none());
    guard.release().await.expect("given back");
    let guard = by_url.mutex("L").lock().await.expect("locked");
    assert!(coded.mutex("L").try_lock().await.expect("asked").is_none());
    drop(guard);
}

pub(crate) fn sentinels_in_code_have_a_login_of_their_own() {
    let set = SentinelSet::with_logins(SERVER, SENTINEL);
    let at = set.sentinels.iter().map(|sentinel| ("127.0.0.1", sentinel.port));
    let options = RedisOptions::sentinel("mymaster", at)
        .credentials(Credentials::new(Some(SERVER.user), SERVER.pass))
        .sentinel_credentials(Credentials::new(Some(SENTINEL.user), SENTINEL.pass));
    let url = set.url().replace("://", &format!("://{}:{}@", SERVER.user, SERVER.pass));
    let url = format!("{url}?sentinel_user={}&sentinel_pass={}", SENTINEL.user, SENTINEL.pass);
    block_on(share(options, &url));
}

pub(crate) fn a_cluster_in_code_is_that_of_a_url() {
    let cluster = Cluster::start();
    let nodes = cluster.nodes.iter().take(2).map(|node| ("127.0.0.1", node.port));
    block_on(share(RedisOptions::cluster(nodes), &cluster.url()));
}
