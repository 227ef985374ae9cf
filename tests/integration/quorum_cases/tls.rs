//! Members of a quorum with `rediss://`.

use std::path::Path;

use futures::future::join_all;
use leasehold::{ErrorKind, Locker};
use leasehold_tests::{Authority, RedisServer, eventually};

use crate::quorum::{TTL, held_at};
use crate::{LIMIT, in_line};

const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

fn url(server: &RedisServer, ca: &Path) -> String {
    let (port, ca) = (server.tls_port(), ca.display());
    format!("rediss://127.0.0.1:{port}?ca={ca}")
}

/// Catches a member whose certificate is not checked, and an error that does not say which member it was.
#[tokio::test]
async fn members_use_tls_and_an_untrusted_one_is_named() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let pair = ours.server(&LOCAL);
    let servers = join_all((0..3).map(|_| ours.start(&pair, false))).await;
    let urls: Vec<_> = servers
        .iter()
        .map(|server| url(server, &ours.file))
        .collect();
    let one = Locker::quorum(&urls).await.expect("all are trusted");
    let other = Locker::quorum(&urls).await.expect("all are trusted");
    let lease = one.lock("x").expect("valid").ttl(TTL).acquire().await;
    let lease = lease.expect("a free lock");
    let everywhere = async || held_at(&servers).await == 3;
    eventually(LIMIT, "all servers have the lock", everywhere).await;
    let lock = other.lock("x").expect("valid").ttl(TTL);
    let waiting = tokio::spawn(async move { lock.acquire().await });
    in_line(&one, "x").await;
    let token = lease.token();
    lease.release().await.expect("a held lock");
    let next = waiting
        .await
        .expect("no panic")
        .expect("the lock is granted");
    assert!(next.token() > token);
    next.release().await.expect("a held lock");

    let mut urls = urls;
    urls[1] = url(&servers[1], &theirs.file);
    let error = Locker::quorum(&urls)
        .await
        .expect_err("the certificate is not trusted");
    assert_eq!(error.kind(), ErrorKind::Tls, "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with("server 2 of the quorum"), "{text}");
}
