//! A side on a server of its own, with what went wrong with it.

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
    /// What went wrong with it.
    pub(super) failures: Vec<String>,
    /// Nothing is asked of it any more.
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

    /// Tells it to do something, and reads what came of it; `None` if it cannot, or has failed.
    pub(super) async fn tell(&mut self, work: &str) -> Option<Value> {
        self.tell_all(&mut [], work).await?.pop()
    }

    /// The same, to more of its processes at the same time.
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
                // What it still does would disturb the others.
                let _ = self.process.child.start_kill();
                self.given_up = true;
                self.failures
                    .push(format!("{name}, after `{work}`: {error}"));
                None
            }
        }
    }

    /// Starts it anew if it was given up: for the next benchmark.
    pub(super) async fn revive(&mut self) -> Result<()> {
        if std::mem::take(&mut self.given_up) {
            self.admin.flushall().await;
            self.process = self.another().await?;
        }
        Ok(())
    }

    /// More processes of this side, on the same server.
    pub(super) async fn more(&self, count: usize) -> Result<Vec<Process>> {
        try_join_all((0..count).map(|_| self.another())).await
    }

    async fn another(&self) -> Result<Process> {
        Process::start(&self.program, &self.server.port().to_string()).await
    }

    /// All commands that the server has run, those in scripts included.
    pub(super) async fn commands(&mut self) -> Result<f64> {
        let stats = self.admin.string(&["INFO", "commandstats"]).await;
        let stats = stats.ok_or("INFO answers with a text")?;
        let calls = stats
            .lines()
            .filter(|line| !line.starts_with("cmdstat_info:"));
        let calls = calls.filter_map(|line| line.split_once(":calls=")?.1.split(',').next());
        Ok(calls.filter_map(|calls| calls.parse::<f64>().ok()).sum())
    }

    /// Seconds of processor time of the side's process, and of its server.
    pub(super) fn processor(&self) -> Result<[f64; 2]> {
        let process = self.process.child.id().ok_or("the program has ended")?;
        Ok([seconds_of(process)?, seconds_of(self.server.pid())?])
    }
}
