//! A server with canned replies.

use std::fmt::{self, Debug};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::Resp;

/// How many commands [`FakeServer::commands`] keeps; later ones are answered and not kept.
const COMMAND_LIMIT: usize = 10_000;

type Answer = dyn Fn(&[String]) -> String + Send + Sync;

struct Shared {
    answer: Box<Answer>,
    commands: Mutex<Vec<Vec<String>>>,
}

impl Shared {
    fn remember(&self, command: Vec<String>) {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if commands.len() < COMMAND_LIMIT {
            commands.push(command);
        }
    }
}

/// A minimal RESP2 server whose only commands are those that its closure answers.
///
/// Dropping it closes its connections.
pub struct FakeServer {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl FakeServer {
    /// Starts a server that answers each command, given as its words, with what the closure returns: raw
    /// RESP2, for example `"+OK\r\n"`. It does not reply if that is empty.
    pub async fn start(answer: impl Fn(&[String]) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .unwrap_or_else(|error| panic!("binding a fake server: {error}"));
        let port = listener
            .local_addr()
            .expect("a bound listener has an address")
            .port();
        let shared = Arc::new(Shared {
            answer: Box::new(answer),
            commands: Mutex::default(),
        });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    /// Starts a server that greets like Redis and answers INFO with `text`, for example `"#
    /// Server\r\nredis_version:6.2.14\r\n"`. It rejects HELLO, so it cannot speak RESP3, and every command
    /// except those that a client sends when it connects.
    pub async fn with_info(text: &str) -> Self {
        let info = format!("${}\r\n{text}\r\n", text.len());
        Self::start(move |command| {
            let name = command[0].to_uppercase();
            match name.as_str() {
                "PING" => "+PONG\r\n".to_owned(),
                "CLIENT" | "SELECT" => "+OK\r\n".to_owned(),
                "INFO" => info.clone(),
                _ => format!("-ERR unknown command '{}'\r\n", command[0]),
            }
        })
        .await
    }

    /// Returns the URL `redis://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Returns the port that the server listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the commands that it got so far from all connections (the first 10,000).
    pub fn commands(&self) -> Vec<Vec<String>> {
        self.shared
            .commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Debug for FakeServer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("FakeServer")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // The set aborts the connections when it is dropped, which happens with this task.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&shared)));
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    let mut unread = Vec::new();
    while stream.read_buf(&mut unread).await? > 0 {
        while let Some((value, length)) = Resp::parse(&unread) {
            unread.drain(..length);
            let Resp::Array(words) = value else {
                panic!("not a command: {value:?}")
            };
            let words: Vec<String> = words.iter().filter_map(Resp::as_string).collect();
            let answer = (shared.answer)(&words);
            shared.remember(words);
            stream.write_all(answer.as_bytes()).await?;
        }
    }
    Ok(())
}
