//! The program of a side, which takes commands line by line (see `peers/README.md`), alone or with a server of its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::future::try_join_all;
use leasehold_tests::{Admin, RedisServer};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::Result;
use crate::languages::Program;
use crate::stats::seconds_of;

/// Longer than a side takes for anything, including its end with many waiters.
const LIMIT: Duration = Duration::from_secs(45);

/// A running program. Dropping it ends the program.
pub(crate) struct Process {
    name: &'static str,
    /// The version that the program reports.
    pub(crate) version: String,
    pub(crate) child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a side on the servers at these ports.
    pub(crate) async fn start(program: &Program, ports: &str) -> Result<Self> {
        let name = program.name;
        let [command, args @ ..] = &program.command[..] else {
            return Err(format!("{name} has no command").into());
        };
        let mut child = Command::new(command)
            .args(args)
            .args([ports, program.argument])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| format!("starting {name}: {error}"))?;
        let piped = "its input and output are piped";
        let input = child.stdin.take().ok_or(piped)?;
        let lines = BufReader::new(child.stdout.take().ok_or(piped)?).lines();
        let version = String::new();
        let mut process = Self {
            name,
            version,
            child,
            input,
            lines,
        };
        let ready = process.read().await?;
        let version = ready["ready"].as_str().ok_or("a side says its version")?;
        version.clone_into(&mut process.version);
        Ok(process)
    }

    /// Sends a command, and reads the result; `None` if the side cannot do it.
    pub(crate) async fn tell(&mut self, work: &str) -> Result<Option<Value>> {
        self.input.write_all(format!("{work}\n").as_bytes()).await?;
        let done = self.read().await?;
        Ok(done.get("cannot").is_none().then_some(done))
    }

    /// Returns the next line that the program prints.
    pub(crate) async fn read(&mut self) -> Result<Value> {
        let line = timeout(LIMIT, self.lines.next_line()).await;
        let line = line.map_err(|_| format!("{} said nothing for {LIMIT:?}", self.name))?;
        let line = line?.ok_or_else(|| format!("{} has ended", self.name))?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// A side on a server of its own, with its failures.
pub(crate) struct Peer {
    pub(crate) program: Program,
    pub(crate) admin: Admin,
    pub(crate) process: Process,
    /// The failures of the side.
    pub(crate) failures: Vec<String>,
    /// True if the side gets no more commands.
    given_up: bool,
    server: RedisServer,
}

impl Peer {
    pub(crate) async fn start(program: &Program) -> Result<Self> {
        let server = RedisServer::start().await;
        Ok(Self {
            program: program.clone(),
            admin: Admin::connect(&server).await,
            process: Process::start(program, &server.port().to_string()).await?,
            failures: Vec::new(),
            given_up: false,
            server,
        })
    }

    /// Sends a command, and reads the result; `None` if the side cannot do it or has failed.
    pub(crate) async fn tell(&mut self, work: &str) -> Option<Value> {
        self.tell_all(&mut [], work).await?.pop()
    }

    /// Sends a command to more of its processes at the same time.
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
                let name = self.program.name;
                eprintln!("!! NOTHING MORE IS MEASURED of {name}: {error}");
                // A running command would disturb the others.
                let _ = self.process.child.start_kill();
                self.given_up = true;
                self.failures
                    .push(format!("{name}, after `{work}`: {error}"));
                None
            }
        }
    }

    /// Restarts the side if it was given up, for the next benchmark.
    pub(crate) async fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.given_up) {
            self.admin.flushall().await;
            self.process = self.another().await?;
        }
        Ok(())
    }

    /// Starts more processes of this side on the same server.
    pub(crate) async fn more(&self, count: usize) -> Result<Vec<Process>> {
        try_join_all((0..count).map(|_| self.another())).await
    }

    async fn another(&self) -> Result<Process> {
        Process::start(&self.program, &self.server.port().to_string()).await
    }

    /// Returns true if the side gets no more commands, because it failed.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up
    }

    /// Returns the folder of the server, for what else the side needs.
    pub(crate) fn folder(&self) -> &Path {
        self.server.folder()
    }

    /// Returns how many commands the server has run, including those in scripts.
    pub(crate) async fn commands(&mut self) -> Result<f64> {
        let stats = self.admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.ok_or("INFO answers with a text")?;
        let calls = stats
            .lines()
            .filter(|line| !line.starts_with("cmdstat_info:"));
        let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
        Ok(calls.filter_map(|calls| calls.parse::<f64>().ok()).sum())
    }

    /// Returns the seconds of processor time of the side's process, and of its server.
    pub(crate) fn processor(&self) -> Result<[f64; 2]> {
        let process = self.process.child.id().ok_or("the program has ended")?;
        Ok([seconds_of(process)?, seconds_of(self.server.pid())?])
    }
}

/// Returns a number from a program's output.
pub(crate) fn number(done: &Value, field: &str) -> Result<f64> {
    let number = done[field].as_f64();
    Ok(number.ok_or_else(|| format!("no {field} in {done}"))?)
}
