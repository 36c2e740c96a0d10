//! Fences for keys in a Redis Cluster: three masters with a replica each.

use std::time::Duration;

use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use tenure::fence::marks::Marks;
use tenure::fence::redis::{Decrement, RedisFence, RedisMarks};

use super::redis::{get, stale, token};
use tenure_testkit::cluster::Cluster;
use tenure_testkit::locker::block_on;

const KEYS: [(&str, &str); 6] = [
    ("a", "tenure_fence:{a}"),
    ("{a}", "tenure_fence_tag:{a}"),
    ("stock:{1001}:units", "tenure_fence_tag:stock:{1001}:units"),
    ("{1001}}", "tenure_fence_tag:{1001}}"),
    ("a{b", "tenure_fence:{a{b}"),
    ("key with spaces", "tenure_fence:{key with spaces}"),
];

async fn link(cluster: &Cluster) -> ClusterConnection {
    let hosts = cluster.nodes.iter().map(|node| node.url());
    ClusterClient::new(hosts.collect::<Vec<_>>()).expect("a client").get_async_connection().await.expect("connected")
}

pub(crate) fn keys_of_all_kinds_are_fenced_in_a_cluster() {
    let cluster = Cluster::start();
    block_on(async {
        let fence = RedisFence::new(link(&cluster).await);
        for (key, beside) in KEYS {
            assert_eq!(cluster.slot(key), cluster.slot(beside), "as the server counts");
            fence.set(key, 10, &token(5)).await.expect("written");
            fence.set_for(key, 10, Duration::from_secs(1000), &token(6)).await.expect("written");
            assert_eq!(fence.decrement(key, 4, &token(7)).await.expect("taken"), Decrement::Left(6));
            let late = fence.set(key, "late", &token(6)).await.expect_err("too late");
            assert_eq!(late.stale(), Some(&stale(key, 6, 7)));
            let mut owner = cluster.raw(cluster.owner(cluster.slot(key)));
            assert_eq!(get::<u64>(&mut owner, &["GET", key]), 6);
            assert_eq!(get::<u64>(&mut owner, &["GET", beside]), 7);
            assert!(fence.delete(key, &token(7)).await.expect("deleted"));
            fence.decrement(key, 1, &token(6)).await.expect_err("too late");
        }
        let marks = RedisMarks::new(link(&cluster).await);
        for resource in ["/a", "/b", "/c}", "{"] {
            assert_eq!(marks.raise(resource, token(5)).await.expect("raised"), token(5));
            assert_eq!(marks.raise(resource, token(4)).await.expect("raised"), token(5));
        }
    });
}

pub(crate) fn a_fence_moves_with_its_slot() {
    let cluster = Cluster::start();
    block_on(async {
        let fence = RedisFence::new(link(&cluster).await);
        let slot = cluster.slot("k");
        for n in 1..=3 {
            fence.set("k", n, &token(10 * n)).await.expect("written");
            let to = cluster.other_master(slot);
            cluster.migrate(slot, to);
            let late = fence.set("k", "late", &token(10 * n - 1)).await.expect_err("too late, also there");
            assert_eq!(late.stale(), Some(&stale("k", 10 * n - 1, 10 * n)));
            assert_eq!(get::<u64>(&mut cluster.raw(to), &["GET", "k"]), n);
        }
    });
}
