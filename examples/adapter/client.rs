//! A minimal Redis client, and the adapter by which the lock uses it.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::adapter::{Adapter, CallError, Calling, Command, Hearing, Link, Task};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;

const RETRY: Duration = Duration::from_millis(50);
/// How many commands may wait to be written.
const MOST_WAITING: usize = 1_024;
/// The longest reply that is accepted, and how deep its lists may be.
const LONGEST: usize = 16 * 1_024 * 1_024;
const DEEPEST: usize = 8;

/// A client with one connection for commands, replaced when it breaks, and one for each channel.
pub(crate) struct Client {
    address: String,
    calls: mpsc::Sender<Call>,
    /// The reason why the connection is down; `None` while it is up.
    state: watch::Receiver<Option<String>>,
    connection: AbortHandle,
}

struct Call {
    command: Vec<u8>,
    reply: oneshot::Sender<Result<Reply, CallError>>,
}

enum Reply {
    Text(Vec<u8>),
    List(Vec<Reply>),
    Refusal(String),
}

impl Client {
    /// Begins to connect to `host:port`, on the tokio runtime that it is called on.
    pub(crate) fn connect(address: String) -> Self {
        let (calls, waiting) = mpsc::channel(MOST_WAITING);
        let (said, state) = watch::channel(Some("not connected yet".to_owned()));
        let connection = tokio::spawn(keep_connected(address.clone(), waiting, said));
        Self {
            address,
            calls,
            state,
            connection: connection.abort_handle(),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Adapter for Client {
    fn call(&self, command: Command) -> Calling<'_> {
        let words = [command.name().as_bytes()].into_iter();
        let command = encode(words.chain(command.args()));
        Box::pin(async move {
            let (reply, answer) = oneshot::channel();
            let call = Call { command, reply };
            let gone = || CallError::Unreachable("the connection broke".to_owned());
            self.calls.send(call).await.map_err(|_| gone())?;
            texts(answer.await.map_err(|_| gone())??)
        })
    }

    fn watch(&self, link: Link) -> Task<'_> {
        let mut state = self.state.clone();
        Box::pin(async move {
            loop {
                match &*state.borrow_and_update() {
                    None => link.up(),
                    Some(reason) => link.down(reason),
                }
                if state.changed().await.is_err() {
                    return;
                }
            }
        })
    }

    fn listen(&self, channel: String, hearing: Hearing) -> Task<'_> {
        Box::pin(async move {
            loop {
                let _ = hear(&self.address, &channel, &hearing).await;
                hearing.unsubscribed();
                tokio::time::sleep(RETRY).await;
            }
        })
    }
}

async fn keep_connected(
    address: String,
    mut calls: mpsc::Receiver<Call>,
    state: watch::Sender<Option<String>>,
) {
    loop {
        let broken = match TcpStream::connect(&address).await {
            Ok(stream) => {
                state.send_replace(None);
                serve(stream, &mut calls).await
            }
            Err(error) => Err(error),
        };
        let Err(error) = broken else { return };
        let reason = error.to_string();
        state.send_replace(Some(reason.clone()));
        // Messages are not kept while the connection is down: the lock asks again when it is up.
        let refuse = async {
            while let Some(call) = calls.recv().await {
                let error = CallError::Unreachable(reason.clone());
                let _ = call.reply.send(Err(error));
            }
        };
        let _ = tokio::time::timeout(RETRY, refuse).await;
    }
}

/// Writes commands and returns their replies in the same order, until there are no more commands.
async fn serve(stream: TcpStream, calls: &mut mpsc::Receiver<Call>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, mut write) = stream.into_split();
    let unanswered = Arc::new(Mutex::new(VecDeque::new()));
    let lock = || unanswered.lock().unwrap_or_else(PoisonError::into_inner);
    let reading = async {
        let mut read = BufReader::new(read);
        loop {
            let reply = read_reply(&mut read).await?;
            let call: Option<oneshot::Sender<_>> = lock().pop_front();
            let _ = call.ok_or_else(malformed)?.send(Ok(reply));
        }
    };
    let writing = async {
        while let Some(call) = calls.recv().await {
            lock().push_back(call.reply);
            write.write_all(&call.command).await?;
        }
        Ok(())
    };
    tokio::select! {
        broken = reading => broken,
        ended = writing => ended,
    }
}

/// Receives the messages of a channel until its connection breaks.
async fn hear(address: &str, channel: &str, hearing: &Hearing) -> io::Result<()> {
    let (read, mut write) = TcpStream::connect(address).await?.into_split();
    let subscribe = [b"SUBSCRIBE", channel.as_bytes()];
    write.write_all(&encode(subscribe.into_iter())).await?;
    let mut read = BufReader::new(read);
    loop {
        let Reply::List(parts) = read_reply(&mut read).await? else {
            return Err(malformed());
        };
        match parts.as_slice() {
            [Reply::Text(kind), _, Reply::Text(text)] if kind == b"message" => {
                hearing.message(text);
            }
            [Reply::Text(kind), ..] if kind == b"subscribe" => hearing.subscribed(),
            _ => return Err(malformed()),
        }
    }
}

fn encode<'a>(words: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut text = Vec::new();
    let mut count = 0;
    for word in words {
        count += 1;
        text.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        text.extend_from_slice(word);
        text.extend_from_slice(b"\r\n");
    }
    let mut command = format!("*{count}\r\n").into_bytes();
    command.append(&mut text);
    command
}

fn texts(reply: Reply) -> Result<Vec<Vec<u8>>, CallError> {
    let text = |reply| match reply {
        Reply::Text(text) => Ok(text),
        _ => Err(CallError::Unreadable(
            "a list of texts was expected".to_owned(),
        )),
    };
    match reply {
        Reply::Refusal(said) => Err(CallError::Refused(said)),
        Reply::List(replies) => replies.into_iter().map(text).collect(),
        Reply::Text(text) => Ok(vec![text]),
    }
}

async fn read_reply(read: &mut BufReader<OwnedReadHalf>) -> io::Result<Reply> {
    read_value(read, DEEPEST).await
}

async fn read_value(read: &mut BufReader<OwnedReadHalf>, depth: usize) -> io::Result<Reply> {
    let mut line = String::new();
    let limited = &mut read.take(LONGEST as u64);
    if limited.read_line(&mut line).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let line = line.strip_suffix("\r\n").ok_or_else(malformed)?;
    let (kind, rest) = line.split_at_checked(1).ok_or_else(malformed)?;
    let length = || rest.parse().ok().filter(|length| *length <= LONGEST);
    Ok(match kind {
        "+" | ":" => Reply::Text(rest.as_bytes().to_vec()),
        "-" => Reply::Refusal(rest.to_owned()),
        "$" => {
            let mut text = vec![0; length().ok_or_else(malformed)? + 2];
            read.read_exact(&mut text).await?;
            text.truncate(text.len() - 2);
            Reply::Text(text)
        }
        "*" if depth > 0 => {
            let mut list = Vec::new();
            for _ in 0..length().ok_or_else(malformed)? {
                list.push(Box::pin(read_value(read, depth - 1)).await?);
            }
            Reply::List(list)
        }
        _ => return Err(malformed()),
    })
}

fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the server's reply makes no sense",
    )
}
