//! Servers that do not speak as Redis does, on purpose or because something in between garbles their words.

use std::time::Instant;

use leasehold::{ErrorKind, Locker};
use leasehold_tests::within;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::{LIMIT, millis};

/// The most by which the program's memory may grow beside a hostile server.
const MOST_MEMORY: usize = 256 << 20;

/// A way to answer, whatever the request is.
#[derive(Clone)]
enum Talk {
    /// Answers each request with these bytes.
    Says(Vec<u8>),
    /// Answers with these bytes, without end.
    Pours(&'static [u8]),
    /// Answers as to PING, one byte per 50 ms.
    Drips,
    /// Answers nothing.
    Silent,
}

fn says(bytes: impl Into<Vec<u8>>) -> Talk {
    Talk::Says(bytes.into())
}

async fn talk(mut stream: TcpStream, talk: Talk) -> std::io::Result<()> {
    let mut heard = [0; 4_096];
    loop {
        if stream.read(&mut heard).await? == 0 {
            return Ok(());
        }
        match &talk {
            Talk::Says(bytes) => stream.write_all(bytes).await?,
            Talk::Pours(bytes) => loop {
                stream.write_all(&bytes.repeat(4_096 / bytes.len())).await?;
            },
            Talk::Drips => {
                for byte in b"+PONG\r\n" {
                    stream.write_all(&[*byte]).await?;
                    tokio::time::sleep(millis(50)).await;
                }
            }
            Talk::Silent => {}
        }
    }
}

/// Starts a server, and returns its URL.
async fn server(talks: Talk) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(talk(stream, talks.clone()));
        }
    });
    format!("redis://:s3cret@127.0.0.1:{port}")
}

/// Returns the memory that the process has, in bytes.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = status
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse().ok());
    pages.unwrap_or(0) * 4_096
}

/// Catches a server that makes a program hang, panic, run out of memory or of stack, or show its password.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_talks_nonsense_is_refused_in_time() {
    let talks = [
        ("noise", says(*b"\0\xff\xfe\r\n\r\n\x80")),
        (
            "http",
            says(*b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
        ),
        ("numbers", says(*b":1\r\n")),
        ("nulls", says(*b"$-1\r\n")),
        ("an error", says(*b"-ERR \x1b[31mnonsense\r\n")),
        ("a negative length", says(*b"*-2\r\n")),
        ("a huge list", says(*b"*1000000000\r\n")),
        ("a huge text", says(*b"$536870912\r\nabc")),
        (
            "an impossible length",
            says(*b"$99999999999999999999999999\r\n"),
        ),
        ("a huge map", says(*b"%2147483647\r\n")),
        // Many more end the process: docs/book/src/limits.md, "A hostile server".
        ("deep lists", says(b"*1\r\n".repeat(50))),
        ("pushes", says(*b">2\r\n+message\r\n+x\r\n")),
        ("a line without end", Talk::Pours(b"+aaaa")),
        ("answers without end", Talk::Pours(b"+OK\r\n")),
        ("drops", Talk::Drips),
        ("silence", Talk::Silent),
    ];
    for (what, talks) in talks {
        let url = server(talks).await;
        let (began, before) = (Instant::now(), memory());
        let builder = || {
            let builder = Locker::builder().connect_timeout(millis(400));
            builder.command_timeout(millis(200)).patience(millis(400))
        };
        let connected = within(LIMIT, builder().connect(&url)).await;
        let error = connected.unwrap_or_else(|| panic!("{what}: connecting hangs"));
        let error = error.err().unwrap_or_else(|| panic!("{what}: it connects"));
        let kinds = [
            ErrorKind::Unavailable,
            ErrorKind::Timeout,
            ErrorKind::Store,
            ErrorKind::Unsupported,
            ErrorKind::Auth,
        ];
        assert!(kinds.contains(&error.kind()), "{what}: {error:?}");
        let text = format!("{error} {error:?}");
        assert!(
            !text.contains("s3cret") && !text.contains('\x1b'),
            "{what}: {text}"
        );
        assert!(text.len() < 2_000, "{what}: {text}");

        // A locker that connects in the background goes on trying, and its calls fail in time.
        let locker = builder().connect_lazily(&url).expect("a valid URL");
        let lock = locker.lock("x").expect("a valid name");
        let tried = within(LIMIT, lock.try_acquire()).await;
        let tried = tried.unwrap_or_else(|| panic!("{what}: a call hangs"));
        assert!(tried.is_err(), "{what}: {tried:?}");
        within(LIMIT, locker.shutdown())
            .await
            .unwrap_or_else(|| panic!("{what}: the shutdown hangs"));
        let grown = memory().saturating_sub(before);
        assert!(grown < MOST_MEMORY, "{what}: {grown} bytes more");
        assert!(began.elapsed() < LIMIT, "{what}: {:?}", began.elapsed());
    }
}
