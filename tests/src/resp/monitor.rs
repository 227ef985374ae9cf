//! A log of the commands that a server executes, as MONITOR shows them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Admin, Resp};
use crate::{RedisServer, eventually, unique_name};

/// How many lines a monitor keeps; a test that makes more has to [`Monitor::clear`] in between.
const LINE_LIMIT: usize = 100_000;
const SYNC_LIMIT: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    overflow: bool,
}

/// A connection in MONITOR mode that collects every command the server executes from now on.
///
/// A line is as Redis prints it: `1700000000.123456 [0 127.0.0.1:5555] "set" "k" "v"`. Commands of scripts
/// have `lua` as the address.
#[derive(Debug)]
pub struct Monitor {
    log: Arc<Mutex<Log>>,
    probe: Admin,
    task: JoinHandle<()>,
}

impl Monitor {
    /// Starts to watch `server`.
    pub async fn start(server: &RedisServer) -> Self {
        let probe = Admin::connect(server).await;
        let mut connection = Admin::connect(server).await;
        connection.ok(&["MONITOR"]).await;
        let log = Arc::new(Mutex::new(Log::default()));
        let task = tokio::spawn({
            let log = Arc::clone(&log);
            async move {
                while let Ok(Resp::Simple(line)) = connection.next_value().await {
                    let mut log = lock(&log);
                    if log.lines.len() < LINE_LIMIT {
                        log.lines.push(line);
                    } else {
                        log.overflow = true;
                    }
                }
            }
        });
        Self { log, probe, task }
    }

    /// Returns a line for everything that the server had executed when this was called.
    ///
    /// It sends a command of its own and waits until that appears, so no line is missing. Panics if there
    /// were more than 100,000 lines or the server does not answer.
    pub async fn lines(&mut self) -> Vec<String> {
        let mark = unique_name("monitor-sync");
        assert_eq!(
            self.probe.string(&["ECHO", &mark]).await.as_ref(),
            Some(&mark)
        );
        let Self { log, task, .. } = self;
        eventually(SYNC_LIMIT, "the monitor's own mark", async || {
            assert!(!task.is_finished(), "the monitor's connection ended");
            let mut log = lock(log);
            assert!(
                !log.overflow,
                "more than {LINE_LIMIT} lines in a monitor: clear it earlier"
            );
            let found = log.lines.iter().rposition(|line| line.contains(&mark))?;
            log.lines.remove(found);
            Some(log.lines.clone())
        })
        .await
    }

    /// Returns the lines of [`Self::lines`] that contain `text`, for example a key.
    pub async fn matching(&mut self, text: &str) -> Vec<String> {
        let mut lines = self.lines().await;
        lines.retain(|line| line.contains(text));
        lines
    }

    /// Forgets everything that the server has executed up to now.
    pub async fn clear(&mut self) {
        let seen = self.lines().await.len();
        lock(&self.log).lines.drain(..seen);
    }
}

fn lock(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    // A panic of a reader leaves the lines unchanged.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_monitor_sees_every_command_in_order() {
        let server = RedisServer::config().password("secret").start().await;
        let mut admin = Admin::connect(&server).await;
        let mut monitor = Monitor::start(&server).await;
        for number in 0..200 {
            admin.ok(&["SET", "watched", &number.to_string()]).await;
        }
        let lines = monitor.matching("\"watched\"").await;
        assert_eq!(lines.len(), 200);
        assert!(
            lines[199].ends_with("\"SET\" \"watched\" \"199\""),
            "{}",
            lines[199]
        );

        monitor.clear().await;
        assert!(monitor.lines().await.is_empty());
        admin
            .int(&["EVAL", "return redis.call('incr', KEYS[1])", "1", "watched"])
            .await;
        let lines = monitor.matching("watched").await;
        assert!(lines[1].contains("lua] \"incr\""), "{lines:?}");
    }
}
