//! A side's program.

use std::process::Stdio;
use std::time::Duration;

use futures::future::try_join_all;
use leasehold_tests::{Admin, RedisServer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Result;
use crate::plan::Side;

/// Longer than a side takes for anything, its end with many waiters included.
const LIMIT: Duration = Duration::from_secs(45);

/// A side, on a server of its own.
pub(crate) struct Peer {
    pub(crate) side: Side,
    pub(crate) version: String,
    pub(crate) admin: Admin,
    pub(crate) process: Process,
    /// What went wrong with it.
    pub(crate) failures: Vec<String>,
    /// Nothing is asked of it any more.
    given_up: bool,
    server: RedisServer,
}

impl Peer {
    pub(crate) async fn start(side: &Side) -> Result<Self> {
        let server = RedisServer::start().await;
        let (process, version) = Process::start(side, server.port()).await?;
        Ok(Self {
            side: side.clone(),
            version,
            admin: Admin::connect(&server).await,
            process,
            failures: Vec::new(),
            given_up: false,
            server,
        })
    }

    /// Tells it to do something, and reads what came of it; `None` if it cannot, or has failed.
    pub(crate) async fn tell(&mut self, work: &str) -> Option<Value> {
        self.tell_all(&mut [], work).await?.pop()
    }

    /// The same, to more of its processes at the same time.
    pub(crate) async fn tell_all(
        &mut self,
        more: &mut [Process],
        work: &str,
    ) -> Option<Vec<Value>> {
        if self.given_up {
            return None;
        }
        let all = std::iter::once(&mut self.process).chain(more);
        match try_join_all(all.map(|process| process.tell(work))).await {
            Ok(done) => done.into_iter().collect(),
            Err(error) => {
                eprintln!("!! NOTHING MORE IS MEASURED of {}: {error}", self.side.name);
                // What it still does would disturb the others.
                let _ = self.process.child.start_kill();
                self.given_up = true;
                let failure = format!("{}, after `{work}`: {error}", self.side.name);
                self.failures.push(failure);
                None
            }
        }
    }

    /// Starts it anew if it was given up: for the next benchmark.
    pub(crate) async fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.given_up) {
            self.admin.flushall().await;
            self.process = Process::start(&self.side, self.server.port()).await?.0;
        }
        Ok(())
    }

    /// More processes of this side, on the same server.
    pub(crate) async fn more(&self, count: usize) -> Result<Vec<Process>> {
        let mut processes = Vec::new();
        for _ in 0..count {
            processes.push(Process::start(&self.side, self.server.port()).await?.0);
        }
        Ok(processes)
    }

    /// All commands that the server has run, those in scripts included.
    pub(crate) async fn commands(&mut self) -> Result<f64> {
        let stats = self.admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.ok_or("INFO answers with a text")?;
        let calls = stats
            .lines()
            .filter(|line| !line.starts_with("cmdstat_info:"));
        let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
        Ok(calls.filter_map(|calls| calls.parse::<f64>().ok()).sum())
    }

    /// Seconds of processor time of the side's process, and of its server.
    pub(crate) fn processor(&self) -> Result<[f64; 2]> {
        let process = self.process.child.id().ok_or("the program has ended")?;
        Ok([processor_time(process)?, processor_time(self.server.pid())?])
    }
}

pub(crate) struct Process {
    name: String,
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    async fn start(side: &Side, port: u16) -> Result<(Self, String)> {
        let [program, args @ ..] = &side.command[..] else {
            return Err("a side has a program".into());
        };
        let port = port.to_string();
        let args = args.iter().map(|arg| arg.replace("{port}", &port));
        let mut child = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("starting {}: {error}", side.name))?;
        let piped = "its input and output are piped";
        let input = child.stdin.take().ok_or(piped)?;
        let lines = BufReader::new(child.stdout.take().ok_or(piped)?).lines();
        let mut process = Self {
            name: side.name.clone(),
            child,
            input,
            lines,
        };
        let ready = process.read().await?;
        let version = ready["ready"].as_str().ok_or("a side says its version")?;
        Ok((process, version.to_owned()))
    }

    /// Tells it to do something, and reads what came of it; `None` if it cannot.
    async fn tell(&mut self, work: &str) -> Result<Option<Value>> {
        self.input.write_all(format!("{work}\n").as_bytes()).await?;
        let done = self.read().await?;
        Ok(done.get("cannot").is_none().then_some(done))
    }

    /// The next line that it prints.
    pub(crate) async fn read(&mut self) -> Result<Value> {
        let line = timeout(LIMIT, self.lines.next_line()).await;
        let line = line.map_err(|_| format!("{} said nothing for {LIMIT:?}", self.name))?;
        let line = line?.ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// Of all threads of a process, in seconds.
fn processor_time(process: u32) -> Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // After the program's name, which may have any character in it; hundredths of seconds on Linux.
    let (_, fields) = stat.rsplit_once(") ").ok_or("/proc names the program")?;
    let mut times = fields.split(' ').skip(11).take(2);
    let ticks = times.try_fold(0.0, |sum, time| time.parse::<f64>().map(|time| sum + time))?;
    Ok(ticks / 100.0)
}
