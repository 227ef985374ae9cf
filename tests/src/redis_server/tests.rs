use std::net::TcpStream;
use std::time::SystemTime;

use super::*;

#[tokio::test]
async fn a_server_starts_pauses_and_stops() {
    let mut server = RedisServer::start().await;
    assert_eq!(server.url(), format!("redis://127.0.0.1:{}", server.port()));
    let mut admin = Admin::connect(&server).await;
    assert_eq!(
        admin.info("server", "process_id").await,
        Some(server.pid().to_string())
    );

    server.pause();
    let ping = admin.try_command(&["PING"]);
    assert!(
        tokio::time::timeout(Duration::from_millis(100), ping)
            .await
            .is_err()
    );
    server.resume();
    let reply = tokio::time::timeout(LIMIT, admin.next_value()).await;
    let reply = reply.expect("an answer").expect("the server answers again");
    assert_eq!(reply, Resp::Simple("PONG".into()));

    server.pause();
    server.stop().await;
    assert!(TcpStream::connect(("127.0.0.1", server.port())).is_err());
}

#[tokio::test]
async fn a_restarted_server_is_empty_unless_it_is_append_only() {
    for keeps in [false, true] {
        let config = RedisServer::config();
        let mut server = if keeps { config.append_only() } else { config }
            .start()
            .await;
        let (port, pid) = (server.port(), server.pid());
        Admin::connect(&server).await.ok(&["SET", "k", "v"]).await;
        server.pause();
        server.kill();
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        server.restart().await;
        assert_eq!(server.port(), port);
        assert_ne!(server.pid(), pid);
        let value = Admin::connect(&server).await.string(&["GET", "k"]).await;
        assert_eq!(value.as_deref(), keeps.then_some("v"));
    }
}

#[tokio::test]
async fn the_clock_of_a_server_can_be_off() {
    let mut server = RedisServer::config().clock_off(10).start().await;
    for off in [10, 0, -10] {
        server.set_clock_off(off);
        let mut admin = Admin::connect(&server).await;
        let time = admin.command(&["TIME"]).await;
        let Resp::Array(parts) = time else {
            panic!("no time: {time:?}")
        };
        let seconds = parts[0].as_string().expect("text");
        let seconds: i64 = seconds.parse().expect("seconds");
        let here = SystemTime::UNIX_EPOCH.elapsed().expect("past 1970");
        let here = i64::try_from(here.as_secs()).expect("before the year 292 billion");
        let off = i64::from(off);
        assert!((here - seconds + off).abs() <= 5, "{here} {seconds} {off}");
    }
}

#[tokio::test]
async fn a_server_takes_a_password_a_socket_and_arguments() {
    let config = RedisServer::config().password("secret").unix_socket();
    let server = config.args(["--databases", "2"]).start().await;
    assert!(server.url().starts_with("redis://:secret@"));
    assert!(server.socket_path().exists());
    let mut admin = Admin::connect(&server).await;
    admin.ok(&["SELECT", "1"]).await;
    assert!(matches!(
        admin.command(&["SELECT", "2"]).await,
        Resp::Error(_)
    ));
    let mut stranger = Admin::connect_port(server.port()).await;
    assert!(matches!(
        stranger.command(&["GET", "k"]).await,
        Resp::Error(_)
    ));
}

#[tokio::test]
async fn a_replica_copies_its_primary() {
    let primary = RedisServer::config().password("secret").start().await;
    let replica = RedisServer::config().replica_of(&primary).start().await;
    let mut admin = Admin::connect(&replica).await;
    replica.in_sync().await;
    let mut primary = Admin::connect(&primary).await;
    primary.ok(&["SET", "k", "v"]).await;
    assert_eq!(primary.int(&["WAIT", "1", "5000"]).await, 1);
    assert_eq!(admin.string(&["GET", "k"]).await.as_deref(), Some("v"));
}

#[tokio::test]
#[should_panic(expected = "redis-server ended with exit status: 1: the end of its log:")]
async fn a_failed_start_panics_with_the_log() {
    RedisServer::config()
        .args(["--no-such-option", "1"])
        .start()
        .await;
}

#[tokio::test]
async fn dropping_a_server_kills_it_and_removes_its_folder() {
    let server = RedisServer::start().await;
    let (port, folder) = (server.port(), server.folder().to_owned());
    server.pause();
    drop(server);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    assert!(!folder.exists());
}

#[tokio::test]
async fn a_server_notices_that_its_port_is_taken() {
    let other = RedisServer::start().await;
    let mut server = RedisServer::start().await;
    server.kill();
    server.port = other.port();
    assert!(server.launch().await == Launch::PortTaken);
}
