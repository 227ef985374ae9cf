//! A side on a server of its own, with its failures.

use futures::future::try_join_all;
use leasehold_tests::{Admin, RedisServer};
use serde_json::Value;

use crate::Result;
use crate::languages::Program;
use crate::peer::Process;
use crate::stats::seconds_of;

pub(super) struct Peer {
    pub(super) program: Program,
    pub(super) admin: Admin,
    pub(super) process: Process,
    /// The failures of the side.
    pub(super) failures: Vec<String>,
    /// True if the side gets no more commands.
    given_up: bool,
    server: RedisServer,
}

impl Peer {
    pub(super) async fn start(program: &Program) -> Result<Self> {
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
    pub(super) async fn tell(&mut self, work: &str) -> Option<Value> {
        self.tell_all(&mut [], work).await?.pop()
    }

    /// Sends a command to more of its processes at the same time.
    pub(super) async fn tell_all(
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
    pub(super) async fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.given_up) {
            self.admin.flushall().await;
            self.process = self.another().await?;
        }
        Ok(())
    }

    /// Starts more processes of this side on the same server.
    pub(super) async fn more(&self, count: usize) -> Result<Vec<Process>> {
        try_join_all((0..count).map(|_| self.another())).await
    }

    async fn another(&self) -> Result<Process> {
        Process::start(&self.program, &self.server.port().to_string()).await
    }

    /// Returns how many commands the server has run, including those in scripts.
    pub(super) async fn commands(&mut self) -> Result<f64> {
        let stats = self.admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.ok_or("INFO answers with a text")?;
        let calls = stats
            .lines()
            .filter(|line| !line.starts_with("cmdstat_info:"));
        let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
        Ok(calls.filter_map(|calls| calls.parse::<f64>().ok()).sum())
    }

    /// Returns the seconds of processor time of the side's process, and of its server.
    pub(super) fn processor(&self) -> Result<[f64; 2]> {
        let process = self.process.child.id().ok_or("the program has ended")?;
        Ok([seconds_of(process)?, seconds_of(self.server.pid())?])
    }
}
