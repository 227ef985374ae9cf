use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::*;
use crate::eventually;

const LIMIT: Duration = Duration::from_secs(10);
/// Long enough for loopback to deliver what it would deliver.
const QUIET: Duration = Duration::from_millis(60);

/// Starts a server that sends back what it gets.
async fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .await
        .expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await.ok();
            });
        }
    });
    port
}

async fn connect(proxy: &Proxy) -> TcpStream {
    TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))
        .await
        .expect("the proxy accepts")
}

async fn send(stream: &mut TcpStream, text: &str) {
    stream
        .write_all(text.as_bytes())
        .await
        .expect("the connection is open");
}

async fn expect(stream: &mut TcpStream, text: &str) {
    let mut bytes = vec![0; text.len()];
    timeout(LIMIT, stream.read_exact(&mut bytes))
        .await
        .expect(text)
        .expect("the connection is open");
    assert_eq!(bytes, text.as_bytes());
}

async fn expect_silence(stream: &mut TcpStream) {
    assert!(
        timeout(QUIET, stream.read_u8()).await.is_err(),
        "the connection ended or sent bytes"
    );
}

/// Expects a reset. It may come so soon that connecting already fails.
async fn expect_refused(proxy: &Proxy) {
    match TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port())).await {
        Ok(mut stream) => expect_reset(&mut stream).await,
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

async fn expect_reset(stream: &mut TcpStream) {
    let read = timeout(LIMIT, stream.read_u8())
        .await
        .expect("a reset")
        .expect_err("a reset");
    assert_eq!(read.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_black_hole_loses_all_bytes_and_healing_resets() {
    let proxy = Proxy::start(echo().await).await;
    let (mut old, mut idle) = (connect(&proxy).await, connect(&proxy).await);
    send(&mut old, "1").await;
    expect(&mut old, "1").await;
    proxy.set_both(Mode::BlackHole);
    let mut new = connect(&proxy).await;
    send(&mut old, "22").await;
    send(&mut new, "333").await;
    eventually(LIMIT, "the bytes", async || proxy.bytes(Direction::Up) == 6).await;
    expect_silence(&mut old).await;
    expect_silence(&mut new).await;

    // A connection that lost bytes stays half-open; one that lost none goes on.
    proxy.set_both(Mode::Pass);
    send(&mut old, "4444").await;
    send(&mut idle, "5").await;
    expect(&mut idle, "5").await;
    expect_silence(&mut old).await;

    proxy.heal();
    expect_reset(&mut old).await;
    expect_reset(&mut new).await;
    send(&mut idle, "6").await;
    expect(&mut idle, "6").await;
    assert_eq!(proxy.bytes(Direction::Down), 3);
}

#[tokio::test]
async fn discarded_replies_vanish_and_requests_pass() {
    let proxy = Proxy::start(echo().await).await;
    let mut stream = connect(&proxy).await;
    proxy.discard_replies(true);
    send(&mut stream, "request").await;
    eventually(LIMIT, "the reply", async || {
        proxy.bytes(Direction::Down) == 7
    })
    .await;
    proxy.discard_replies(false);
    expect_silence(&mut stream).await;
    proxy.heal();
    expect_reset(&mut stream).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn present_connections_are_cut_and_new_ones_refused() {
    let proxy = Proxy::start(echo().await).await;
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    eventually(LIMIT, "both connections", async || {
        proxy.open_connections() == 2
    })
    .await;
    proxy.set(Direction::Up, Mode::Hold);
    send(&mut second, "lost").await;
    eventually(LIMIT, "held bytes", async || proxy.held(Direction::Up) == 4).await;
    proxy.cut().await;
    assert_eq!(
        (proxy.open_connections(), proxy.held(Direction::Up)),
        (0, 0)
    );
    expect_reset(&mut first).await;
    expect_reset(&mut second).await;

    proxy.set(Direction::Up, Mode::Pass);
    proxy.refuse(true);
    expect_refused(&proxy).await;
    assert_eq!(proxy.connections(), 2);
    proxy.refuse(false);
    let mut third = connect(&proxy).await;
    send(&mut third, "3").await;
    expect(&mut third, "3").await;
}

#[tokio::test]
async fn a_mode_may_affect_one_connection_only() {
    let proxy = Proxy::start(echo().await).await;
    let (mut first, mut second) = (connect(&proxy).await, connect(&proxy).await);
    for stream in [&mut first, &mut second] {
        send(stream, "1").await;
        expect(stream, "1").await;
    }
    proxy.only(1);
    proxy.set_both(Mode::BlackHole);
    for stream in [&mut first, &mut second] {
        send(stream, "2").await;
    }
    expect(&mut first, "2").await;
    expect_silence(&mut second).await;
}

#[tokio::test]
async fn latency_delays_each_direction() {
    let proxy = Proxy::start(echo().await).await;
    let mut stream = connect(&proxy).await;
    proxy.latency(Duration::from_millis(40));
    let start = Instant::now();
    send(&mut stream, "slow").await;
    expect(&mut stream, "slow").await;
    assert!(start.elapsed() >= Duration::from_millis(80));
}
