//! The guarded store: registers over TCP, behind a [`Gate`].
//!
//! A request is a line, `read NAME TOKEN` or `write NAME TOKEN VALUE`; so is the answer, `ok VALUE`, `ok` or `stale`.

use std::collections::HashMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::FencingToken;
use leasehold::fence::Gate;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::history::now;

/// How long a client waits for an answer. After that the outcome is unknown.
const PATIENCE: Duration = Duration::from_secs(6);

/// A request that the store answered, in the order of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// The time by the clock of histories.
    pub at: u64,
    /// The register.
    pub name: String,
    /// The token of the request.
    pub token: u64,
    /// True for a write, false for a read.
    pub writes: bool,
    /// True if the store did it, false if it refused the token.
    pub accepted: bool,
}

#[derive(Debug, Default)]
struct State {
    values: HashMap<String, String>,
    served: Vec<Served>,
}

#[derive(Debug)]
struct Shared {
    /// Absent if every write is taken.
    gate: Option<Gate>,
    state: Mutex<State>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request, or returns `None` if it is not one.
    fn serve(&self, line: &str) -> Option<String> {
        let mut words = line.split(' ');
        let (verb, name, token) = (words.next()?, words.next()?, words.next()?);
        let value = words.next();
        let token: u64 = token.parse().ok()?;
        let mut state = self.state();
        let checked = match &self.gate {
            Some(gate) => gate.check(name, FencingToken::new(token).ok()?).is_ok(),
            None => true,
        };
        let writes = verb == "write";
        state.served.push(Served {
            at: now(),
            name: name.to_owned(),
            token,
            writes,
            accepted: checked,
        });
        if !checked {
            return Some("stale\n".to_owned());
        }
        if writes {
            state.values.insert(name.to_owned(), value?.to_owned());
            return Some("ok\n".to_owned());
        }
        let value = state.values.get(name).map_or("", String::as_str);
        Some(format!("ok {value}\n"))
    }
}

/// A store in this process. It ends when it is dropped.
#[derive(Debug)]
pub struct Store {
    port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Store {
    /// Starts a store that refuses stale tokens, or that takes every write if not `guarded`.
    pub async fn start(guarded: bool) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let shared = Arc::new(Shared {
            gate: guarded.then(Gate::new),
            state: Mutex::default(),
        });
        let served = shared.clone();
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, served.clone()));
            }
        });
        Ok(Self { port, shared, task })
    }

    /// Returns the loopback port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns what was served so far, in order.
    pub fn served(&self) -> Vec<Served> {
        self.shared.state().served.clone()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(stream: TcpStream, shared: Arc<Shared>) {
    let (read, mut write) = stream.into_split();
    let mut lines = BufReader::new(read).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some(answer) = shared.serve(&line) else {
            return;
        };
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The answer of the store to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was done; a read has its value.
    Done(String),
    /// The token is stale.
    Stale,
}

/// A client of the store.
#[derive(Debug)]
pub struct StoreClient {
    port: u16,
    link: Option<(BufReader<OwnedReadHalf>, OwnedWriteHalf)>,
}

impl StoreClient {
    /// Makes a client, which connects when it is first used.
    pub fn new(port: u16) -> Self {
        Self { port, link: None }
    }

    /// Sends a request. After an error it is not known if the store did it.
    pub async fn ask(&mut self, request: &str) -> io::Result<Answer> {
        // After an error the answer may still come, so the connection is not used again.
        let link = self.link.take();
        let port = self.port;
        let work = async move {
            let mut link = if let Some(link) = link {
                link
            } else {
                let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
                stream.set_nodelay(true)?;
                let (read, write) = stream.into_split();
                (BufReader::new(read), write)
            };
            link.1.write_all(format!("{request}\n").as_bytes()).await?;
            let mut answer = String::new();
            if link.0.read_line(&mut answer).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
            Ok((link, answer))
        };
        let (link, answer) = timeout(PATIENCE, work)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)??;
        self.link = Some(link);
        match answer.trim_end_matches('\n').split_once(' ') {
            Some(("ok", value)) => Ok(Answer::Done(value.to_owned())),
            None if answer == "ok\n" => Ok(Answer::Done(String::new())),
            None if answer == "stale\n" => Ok(Answer::Stale),
            _ => Err(io::Error::other(format!("the store answered {answer:?}"))),
        }
    }
}
