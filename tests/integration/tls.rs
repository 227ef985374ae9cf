//! `rediss://`: all connections use TLS, and errors name the fault in time.

use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::{ErrorKind, LeaseEvent, Locker, LossReason, Tls};
use leasehold_tests::{
    Admin, Authority, FakeServer, Pair, RedisServer, Stopwatch, eventually, next_event,
};
use tokio::net::TcpListener;

use crate::{LIMIT, held, in_line, lock_key};

const LOCAL: [&str; 2] = ["localhost", "127.0.0.1"];

/// The time within which a bad connection is refused; the timeout of a silent one is 6 s.
const SOON: Duration = Duration::from_millis(3_500);

fn url(server: &RedisServer, ca: &Path) -> String {
    format!(
        "rediss://127.0.0.1:{}?ca={}",
        server.tls_port(),
        ca.display()
    )
}

fn with_pair(url: &str, pair: &Pair) -> String {
    format!(
        "{url}&cert={}&key={}",
        pair.certificate.display(),
        pair.key.display()
    )
}

/// Checks that the URL is refused soon, with an error of this kind that begins with the server and contains
/// this text.
async fn refused(url: &str, kind: ErrorKind, says: &str) {
    let watch = Stopwatch::start();
    let error = Locker::connect(url).await.expect_err("the URL is refused");
    assert!(
        watch.elapsed() < SOON,
        "after {:?}: {error}",
        watch.elapsed()
    );
    assert_eq!(error.kind(), kind, "{error:?}");
    let (server, _) = url.split_once('?').unwrap_or((url, ""));
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("{server}: ")) && text.contains(says),
        "{text}"
    );
}

/// Catches an unencrypted connection among those for commands, pushes and tracking: the server has only a TLS
/// port.
#[tokio::test]
async fn locks_pushes_and_tracking_use_tls() {
    let ca = Authority::new("ours");
    let pair = ca.server(&LOCAL);
    let server = ca.start(&pair, false).await;
    let mut admin = Admin::connect(&server).await;
    let url = url(&server, &ca.file);
    let (one, other) = (Locker::connect(&url).await, Locker::connect(&url).await);
    let (one, other) = (
        one.expect("the certificate is trusted"),
        other.expect("the certificate is trusted"),
    );
    admin.ok(&["CONFIG", "SET", "port", "0"]).await;
    let lease = held(&one, "x").await;
    let lock = other.lock("x").expect("valid");
    let waiting = tokio::spawn(async move { lock.acquire().await });
    in_line(&one, "x").await;
    let hears = async || admin.hearing_lockers().await == 2;
    eventually(LIMIT, "both are subscribed", hears).await;
    let watch = Stopwatch::start();
    lease.release().await.expect("a held lock");
    let lease = waiting
        .await
        .expect("no panic")
        .expect("the lock is granted");
    assert!(
        watch.elapsed() < Duration::from_millis(900),
        "the grant was not pushed: {:?}",
        watch.elapsed()
    );
    let mut events = other.events();
    let tracked = async || admin.info("clients", "tracking_clients").await.as_deref() == Some("2");
    eventually(LIMIT, "both track", tracked).await;
    // The key is read a moment after the lock was taken.
    let deleted = async || {
        admin.command(&["DEL", &lock_key("x")]).await;
        !lease.is_valid()
    };
    eventually(
        Duration::from_secs(5),
        "the holder hears of the loss",
        deleted,
    )
    .await;
    let lost = |event: &LeaseEvent| {
        matches!(
            event,
            LeaseEvent::Lost {
                reason: LossReason::Deleted,
                ..
            }
        )
    };
    next_event(&mut events, LIMIT, lost).await;
}

/// Catches an error that does not name the fault: each case is a mistake in the user's setup and looks like
/// any closed connection.
#[tokio::test]
async fn an_untrusted_certificate_is_named_as_the_fault() {
    let (ca, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    let tls = ErrorKind::Tls;
    let cases = [
        (ca.expired(), "the server's certificate expired "),
        (
            ca.not_valid_yet(),
            "the server's certificate is not valid for another ",
        ),
        (
            ca.server(&["redis.internal"]),
            "is for redis.internal and not for 127.0.0.1; connect by a name",
        ),
        (
            ca.self_signed(),
            "is self-signed and not trusted; give its file as ca",
        ),
        (
            stranger.server(&LOCAL),
            "is not signed by the CA that was given; give the right one as ca",
        ),
        (ca.client(), "the server's certificate"),
    ];
    for (pair, says) in cases {
        let server = ca.start(&pair, false).await;
        refused(&url(&server, &ca.file), tls, says).await;
    }
    let server = ca.start(&ca.server(&LOCAL), false).await;
    let system = format!("rediss://127.0.0.1:{}", server.tls_port());
    refused(
        &system,
        tls,
        "a CA that this system does not trust; give that CA's file as ca",
    )
    .await;
    // Controls: a given server name is the one that counts, and a self-signed certificate that is
    // its own CA is accepted.
    let pair = ca.server(&["redis.internal"]);
    let server = ca.start(&pair, false).await;
    let named = format!("{}&serverName=redis.internal", url(&server, &ca.file));
    Locker::connect(named)
        .await
        .expect("the certificate has that name");
    let own = ca.self_signed();
    let server = ca.start(&own, false).await;
    Locker::connect(url(&server, &own.certificate))
        .await
        .expect("the certificate is trusted");
}

/// Catches a refusal that comes after the handshake and is taken for a broken connection.
#[tokio::test]
async fn a_demanded_client_certificate_is_sent_or_its_fault_named() {
    let (ca, stranger) = (Authority::new("ours"), Authority::new("a stranger"));
    for versions in ["TLSv1.3", "TLSv1.2"] {
        let pair = ca.server(&LOCAL);
        let config = RedisServer::config().args(["--tls-protocols", versions]);
        let server = config
            .tls(&pair.certificate, &pair.key, &ca.file, true)
            .start()
            .await;
        let url = url(&server, &ca.file);
        let wants = "the server wants a client certificate; give cert and key";
        refused(&url, ErrorKind::Tls, wants).await;
        let strange = with_pair(&url, &stranger.client());
        refused(
            &strange,
            ErrorKind::Tls,
            "the server refused the client certificate",
        )
        .await;
        let client = ca.client();
        Locker::connect(with_pair(&url, &client))
            .await
            .expect("both are trusted");
        let read = |path| fs::read(path).expect("the file exists");
        let tls = Tls::new()
            .ca_pem(read(&ca.file))
            .client_pem(read(&client.certificate), read(&client.key));
        let locker = Locker::builder().tls(tls.clone());
        let bare = format!("rediss://127.0.0.1:{}", server.tls_port());
        let locker = locker.connect(bare).await.expect("both are trusted");
        let lease = held(&locker, "x").await;
        assert!(lease.is_valid());
        assert!(!format!("{tls:?}").contains("PRIVATE"), "{tls:?}");
    }
}

/// Catches a mistake in a file that only a server reports, or none.
#[tokio::test]
async fn files_are_checked_before_connecting() {
    let ca = Authority::new("ours");
    let (client, other) = (ca.client(), ca.self_signed());
    let file = |name: &str, text: &str| {
        let path = ca.file.with_file_name(name);
        fs::write(&path, text).expect("a file can be written");
        path.display().to_string()
    };
    let [no_pem, broken] = [
        file("none.pem", "no certificate"),
        file(
            "broken.pem",
            "-----BEGIN CERTIFICATE-----\ns3cret!\n-----END CERTIFICATE-----\n",
        ),
    ];
    let garbage = file(
        "garbage.pem",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    let [own, certificate, key, others] = [&ca.file, &client.certificate, &client.key, &other.key]
        .map(|path| path.display().to_string());
    let cases = [
        (
            "ca=/no/such/ca.pem".to_owned(),
            "ca file /no/such/ca.pem cannot be read: there is no such file",
        ),
        (format!("ca={no_pem}"), "none.pem has no certificate in PEM"),
        (format!("ca={broken}"), "broken.pem is not valid PEM"),
        (
            format!("ca={garbage}"),
            "garbage.pem has a certificate that cannot be read",
        ),
        (
            format!("ca={own}&cert={certificate}&key=/no/such.key"),
            "client key file /no/such.key cannot be read",
        ),
        (
            format!("ca={own}&cert={certificate}&key={certificate}"),
            "client.pem has no private key in PEM",
        ),
        (
            format!("ca={own}&cert={key}&key={key}"),
            "client.key has no certificate in PEM",
        ),
        (
            format!("ca={own}&cert={certificate}&key={others}"),
            "own.key is not the key of the client certificate file",
        ),
        (
            format!("ca={own}&serverName=a b"),
            "the server name \"a b\" is neither a DNS name nor an IP address",
        ),
    ];
    // No server listens there.
    for (parameters, says) in cases {
        let url = format!("rediss://127.0.0.1:1?{parameters}");
        refused(&url, ErrorKind::Config, says).await;
        let lazy = Locker::connect_lazily(&url).expect_err("the URL is refused");
        assert!(
            lazy.is_config() && lazy.to_string().contains(says),
            "{lazy}"
        );
    }
    refused(
        &format!("rediss://127.0.0.1:1?ca={own}"),
        ErrorKind::Unavailable,
        "refused",
    )
    .await;
}

/// Catches an error like that of a slow server, or of one that breaks off.
#[tokio::test]
async fn tls_to_a_plain_port_and_the_reverse_are_named() {
    let ca = Authority::new("ours");
    let server = ca.start(&ca.server(&LOCAL), false).await;
    let plain = format!("redis://127.0.0.1:{}", server.tls_port());
    refused(
        &plain,
        ErrorKind::Config,
        "the server speaks TLS, but the store's URL does not use it; connect to rediss://",
    )
    .await;
    let secret = format!(
        "rediss://127.0.0.1:{}?ca={}",
        server.port(),
        ca.file.display()
    );
    let says = "the server does not speak TLS, but the store's URL uses it; connect to redis://";
    refused(&secret, ErrorKind::Config, says).await;
    let server = RedisServer::config().password("s3cret").start().await;
    let secret = format!(
        "rediss://127.0.0.1:{}?ca={}",
        server.port(),
        ca.file.display()
    );
    refused(&secret, ErrorKind::Config, says).await;
}

/// Controls: a silent server, and a server of another protocol, are not blamed on TLS.
#[tokio::test]
async fn other_faults_are_not_blamed_on_tls() {
    let ca = Authority::new("ours");
    let silent = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port is free");
    let at = silent.local_addr().expect("the socket is bound");
    let secret = format!("rediss://{at}?ca={}", ca.file.display());
    let (plain, secret) = tokio::join!(
        Locker::connect(format!("redis://{at}")),
        Locker::connect(secret)
    );
    for connected in [plain, secret] {
        let error = connected.expect_err("no server answers");
        assert!(error.is_timeout(), "{error:?}");
    }
    let web = FakeServer::start(|_| "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()).await;
    let error = Locker::connect(web.url())
        .await
        .expect_err("the server is no Redis");
    assert_ne!(error.kind(), ErrorKind::Config, "{error:?}");
}
