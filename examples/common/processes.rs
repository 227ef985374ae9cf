//! Child processes of this program that print lines and take orders.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::cli::{Outcome, promise};

/// How many lines of the children may be unread.
const UNREAD_LIMIT: usize = 64;
const END_LIMIT: Duration = Duration::from_secs(20);

/// All children, for the parent. Dropping it kills them.
#[derive(Debug)]
pub struct Processes {
    running: BTreeMap<u16, Process>,
    sender: mpsc::Sender<(u16, Option<String>)>,
    heard: mpsc::Receiver<(u16, Option<String>)>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// The child's standard input. Closing it ends the child, and it closes too when the parent ends.
    orders: ChildStdin,
}

impl Processes {
    /// Without children.
    pub fn new() -> Self {
        let (sender, heard) = mpsc::channel(UNREAD_LIMIT);
        Self {
            running: BTreeMap::new(),
            sender,
            heard,
        }
    }

    /// Starts this program once more; returns its process id.
    pub fn start(&mut self, number: u16, args: &[&str]) -> Outcome<u32> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C in a terminal goes to a whole process group; the parent ends its children.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (orders, stdout) = pipes.expect("both are piped");
        let sender = self.sender.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send((number, Some(line))).await.is_err() {
                    return;
                }
            }
            // At the end nobody listens any more.
            let _ = sender.send((number, None)).await;
        });
        let id = child.id().unwrap_or_default();
        self.running.insert(number, Process { child, orders });
        Ok(id)
    }

    /// The next line of any of them; an error if one ended that should not.
    pub async fn hear(&mut self) -> Outcome<(u16, String)> {
        loop {
            match self.heard.recv().await.expect("this has a sender too") {
                (number, Some(line)) => return Ok((number, line)),
                (number, None) if self.running.contains_key(&number) => {
                    return Err(format!("process {number} of this program ended by itself").into());
                }
                _ => {}
            }
        }
    }

    /// Gives an order to one.
    pub async fn order(&mut self, number: u16) -> Outcome {
        let process = self.running.get_mut(&number);
        let orders = &mut process.ok_or("it does not run")?.orders;
        Ok(orders.write_all(b"order\n").await?)
    }

    /// Kills one, by SIGKILL, so that it can release nothing.
    pub async fn kill(&mut self, number: u16) -> Outcome {
        let process = self.running.remove(&number);
        Ok(process.ok_or("it does not run")?.child.kill().await?)
    }

    /// The numbers of those that run, in order.
    pub fn running(&self) -> Vec<u16> {
        self.running.keys().copied().collect()
    }

    /// Makes one end, and waits until it has.
    pub async fn end(&mut self, number: u16) -> Outcome {
        let process = self.running.remove(&number);
        let Process { mut child, orders } = process.ok_or("it does not run")?;
        drop(orders);
        let ended = timeout(END_LIMIT, child.wait()).await;
        let status = ended.map_err(|_| format!("process {number} does not end"))??;
        promise(status.success(), || {
            format!("process {number} ended with {status}")
        })
    }
}

impl Default for Processes {
    fn default() -> Self {
        Self::new()
    }
}

/// The orders that a child gets, one item each. When they end, the child is to end.
pub fn orders() -> mpsc::Receiver<()> {
    let (sender, orders) = mpsc::channel(1);
    // Not by tokio's standard input: its thread would keep an interrupted process from ending.
    thread::spawn(move || {
        let mut lines = io::stdin().lines().map_while(Result::ok);
        while lines.next().is_some() && sender.blocking_send(()).is_ok() {}
    });
    orders
}

/// Prints a line for the parent.
pub fn tell(line: &str) {
    // It fails only if the parent has ended; then the orders end too.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
