//! Servers that refuse: the typed error names the culprit and reveals no password.

use leasehold::{Error, ErrorKind, Locker};
use leasehold_tests::{Admin, FakeServer, RedisServer};

use crate::held;

async fn refused(url: &str) -> Error {
    Locker::connect(url).await.expect_err("the call is refused")
}

fn leaks_nothing(error: &Error) {
    let shown = format!("{error} {error:?}");
    assert!(
        !shown.contains("s3cret") && !shown.contains("wr0ng"),
        "{shown}"
    );
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_an_auth_error() {
    let server = RedisServer::config().password("s3cret").start().await;
    let port = server.port();
    for url in [
        format!("redis://:wr0ng@127.0.0.1:{port}"),
        format!("redis://nobody:wr0ng@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
        leaks_nothing(&error);
    }
    let locker = Locker::connect(format!("redis://:s3cret@127.0.0.1:{port}")).await;
    let locker = locker.expect("the password is right");
    assert!(!format!("{locker:?}").contains("s3cret"));
    assert!(
        locker
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("an answer")
            .is_some()
    );
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_a_config_error() {
    let server = RedisServer::config()
        .args(["--databases", "4"])
        .start()
        .await;
    let error = refused(&format!("{}/9", server.url())).await;
    assert_eq!(error.kind(), ErrorKind::Config, "{error:?}");
    assert!(error.to_string().contains("database"), "{error}");
    Locker::connect(format!("{}/3", server.url()))
        .await
        .expect("there are four");
}

#[tokio::test]
async fn databases_are_separate() {
    let server = RedisServer::start().await;
    let one = Locker::connect(format!("{}/1", server.url()))
        .await
        .expect("the server is up");
    let two = Locker::connect(format!("{}/2", server.url()))
        .await
        .expect("the server is up");
    let _held = held(&one, "x").await;
    assert!(
        two.lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("an answer")
            .is_some()
    );
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let fake = FakeServer::with_info("redis_version:6.2.14\r\nrole:master\r\n").await;
    let error = refused(&fake.url()).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(
        error.to_string().contains("6.2.14") && error.to_string().contains('7'),
        "{error}"
    );
}

#[tokio::test]
async fn a_missing_server_is_unavailable() {
    let mut server = RedisServer::start().await;
    let url = format!("redis://me:s3cret@127.0.0.1:{}", server.port());
    server.kill();
    let error = refused(&url).await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(
        error.to_string().contains(&server.port().to_string()),
        "{error}"
    );
    leaks_nothing(&error);

    let error = refused("unix:///nowhere/redis.sock").await;
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("/nowhere/redis.sock"), "{error}");
}

#[tokio::test]
async fn a_missing_right_to_run_scripts_is_an_auth_error() {
    let server = RedisServer::start().await;
    let mut admin = Admin::connect(&server).await;
    let rights = [
        "ACL",
        "SETUSER",
        "poor",
        "on",
        ">s3cret",
        "~*",
        "+@all",
        "-@scripting",
    ];
    admin.command(&rights).await;
    let error = refused(&format!("redis://poor:s3cret@127.0.0.1:{}", server.port())).await;
    assert_eq!(error.kind(), ErrorKind::Auth, "{error:?}");
    leaks_nothing(&error);

    // A user without the right to INFO may still lock.
    let rights = [
        "ACL", "SETUSER", "shy", "on", ">s3cret", "~*", "+@all", "-info",
    ];
    admin.command(&rights).await;
    let locker = Locker::connect(format!("redis://shy:s3cret@127.0.0.1:{}", server.port())).await;
    let locker = locker.expect("the script may run");
    assert!(
        locker
            .lock("x")
            .expect("valid")
            .try_acquire()
            .await
            .expect("an answer")
            .is_some()
    );
}
