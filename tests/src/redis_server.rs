//! Real Redis servers.

mod config;

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

pub use config::RedisConfig;

use crate::{Admin, Resp, eventually, process};

/// How long a server may take to answer after its start, and to end on request.
const LIMIT: Duration = Duration::from_secs(10);
const PORT_ATTEMPTS: usize = 20;
/// The text that Redis logs when another process was faster to bind the port.
const PORT_TAKEN: &str = "Failed listening on port";

#[derive(PartialEq, Eq)]
enum Launch {
    Answers,
    PortTaken,
}

/// A `redis-server` process with its own folder; `LEASEHOLD_REDIS_SERVER` may name another program.
///
/// Dropping it kills the process, paused or not, and removes the folder.
#[derive(Debug)]
pub struct RedisServer {
    folder: TempDir,
    config: RedisConfig,
    port: u16,
    tls_port: u16,
    child: Option<Child>,
}

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::config().start().await
    }

    /// Returns a configuration to change before [`RedisConfig::start`].
    pub fn config() -> RedisConfig {
        RedisConfig::default()
    }

    /// Returns the URL `redis://127.0.0.1:port`, with the password if there is one.
    pub fn url(&self) -> String {
        match &self.config.password {
            Some(password) => format!("redis://:{password}@127.0.0.1:{}", self.port),
            None => format!("redis://127.0.0.1:{}", self.port),
        }
    }

    /// Returns the port, which a restart keeps.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the port for TLS. Panics if the server was not configured with TLS.
    pub fn tls_port(&self) -> u16 {
        assert!(self.config.tls.is_some(), "configure it with tls()");
        self.tls_port
    }

    /// Returns the password that clients need.
    pub fn password(&self) -> Option<&str> {
        self.config.password.as_deref()
    }

    /// Returns the path of the Unix socket. Panics if the server was not configured with one.
    pub fn socket_path(&self) -> PathBuf {
        assert!(self.config.unix_socket, "configure it with unix_socket()");
        self.folder.path().join("redis.sock")
    }

    /// Returns the folder of its log and data.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the process ID. Panics if the process is not running.
    pub fn pid(&self) -> u32 {
        self.running().id()
    }

    /// Returns true unless the process was killed or stopped.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Stops the process (SIGSTOP) and returns once it has stopped. Its port still accepts connections and
    /// bytes, since the kernel does that.
    pub fn pause(&self) {
        process::pause(self.running());
    }

    /// Continues the process (SIGCONT).
    pub fn resume(&self) {
        process::resume(self.running());
    }

    /// Kills the process (SIGKILL), paused or not, and waits until it has ended.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            process::kill(&mut child);
        }
    }

    /// Asks the process to end (SIGTERM), and waits until it has ended.
    pub async fn stop(&mut self) {
        let Some(child) = &mut self.child else { return };
        process::signal(child, Signal::TERM);
        process::resume(child);
        eventually(LIMIT, "redis-server ends", async || {
            child.try_wait().expect("the child can be waited for")
        })
        .await;
        self.child = None;
    }

    /// Starts a new process on the same port and folder, and waits until it answers. Kills the present
    /// process first if it is running.
    pub async fn restart(&mut self) {
        self.kill();
        for _ in 0..PORT_ATTEMPTS {
            if self.launch().await == Launch::Answers {
                return;
            }
            // Another process got the port by chance and will free it soon.
            tokio::time::sleep(LIMIT / 100).await;
        }
        panic!(
            "port {} was taken by another process: {}",
            self.port,
            self.log_tail()
        );
    }

    /// Sets the clock of a server that was configured with [`RedisConfig::clock_off`]. The server may be
    /// running or stopped.
    pub fn set_clock_off(&mut self, seconds: impl Into<f64>) {
        let seconds = seconds.into();
        self.config.clock_off = Some(seconds);
        self.write_clock(seconds);
    }

    /// Writes the file that the server reads whenever it looks at the clock.
    fn write_clock(&self, seconds: f64) {
        let (path, new) = (self.clock_path(), self.folder.path().join("clock.new"));
        fs::write(&new, format!("{seconds:+}\n")).expect("a file can be written");
        fs::rename(&new, path).expect("a file can be renamed");
    }

    fn clock_path(&self) -> PathBuf {
        self.folder.path().join("clock")
    }

    /// Waits until this replica is in sync with its primary.
    pub async fn in_sync(&self) {
        let mut admin = Admin::connect(self).await;
        let up = async || {
            let status = admin.info("replication", "master_link_status").await;
            status.as_deref() == Some("up")
        };
        eventually(LIMIT, "the replica is in sync", up).await;
    }

    /// Waits until this replica has all that its primary did until now. `WAIT` covers only the writes of the
    /// connection that sends it.
    pub async fn has_all_of(&self, primary: &Self) {
        let offset = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok());
        let mut admin = Admin::connect(primary).await;
        let done = offset(admin.info("replication", "master_repl_offset").await);
        let mut admin = Admin::connect(self).await;
        let has = async || {
            let status = admin.info("replication", "master_link_status").await;
            let has = offset(admin.info("replication", "slave_repl_offset").await);
            status.as_deref() == Some("up") && has >= done
        };
        eventually(LIMIT, "the replica has all of its primary", has).await;
    }

    fn running(&self) -> &Child {
        self.child
            .as_ref()
            .expect("redis-server was killed or stopped, and not restarted")
    }

    /// Starts a process and waits until this very process answers.
    async fn launch(&mut self) -> Launch {
        self.child = Some(self.spawn());
        eventually(LIMIT, "redis-server answers", async || {
            let child = self.child.as_mut().expect("it was set above");
            if let Some(status) = child.try_wait().expect("the child can be waited for") {
                self.child = None;
                let log = self.log_tail();
                assert!(
                    log.contains(PORT_TAKEN),
                    "redis-server ended with {status}: {log}"
                );
                return Some(Launch::PortTaken);
            }
            match self.answers().await {
                Ok(true) => Some(Launch::Answers),
                Err(error) if error.kind() == io::ErrorKind::Other => {
                    panic!(
                        "redis-server refuses the test: {error}; {}",
                        self.log_tail()
                    )
                }
                Ok(false) | Err(_) => None,
            }
        })
        .await
    }

    /// Returns true if this process answers PING, and not another one that has the port.
    async fn answers(&self) -> io::Result<bool> {
        let mut admin = Admin::try_connect(self.port, self.password()).await?;
        if admin.try_command(&["PING"]).await? != Resp::Simple("PONG".into()) {
            return Ok(false); // The server still loads its data.
        }
        let info = admin
            .try_command(&["INFO", "server"])
            .await?
            .as_string()
            .unwrap_or_default();
        let mine = format!("process_id:{}", self.pid());
        Ok(info.lines().any(|line| line == mine))
    }

    fn spawn(&self) -> Child {
        let config = &self.config;
        let folder = self.folder.path();
        let program = env::var_os("LEASEHOLD_REDIS_SERVER").unwrap_or("redis-server".into());
        // Each start has its own log, so that the last lines are of the last start.
        let log = File::create(self.log_path())
            .unwrap_or_else(|error| panic!("making the log of redis-server: {error}"));
        let errors = log.try_clone().expect("a file handle can be duplicated");
        let mut command = Command::new(&program);
        if let Some(watched) = &config.watches {
            // The sentinel stores there what it learns.
            fs::write(folder.join("sentinel.conf"), watched).expect("a file can be written");
            command.args(["sentinel.conf", "--sentinel"]);
        }
        command
            .args(["--port", &self.port.to_string()])
            .args(["--bind", "127.0.0.1", "--daemonize", "no", "--save", ""])
            .args([
                "--appendonly",
                if config.append_only { "yes" } else { "no" },
            ])
            .args(["--appendfsync", "always", "--dir", "."])
            // A replica need not wait for others to sync with it: 5 s by default.
            .args(["--repl-diskless-sync-delay", "0"]);
        if let Some(password) = &config.password {
            command.args(["--requirepass", password]);
        }
        if config.unix_socket {
            command.arg("--unixsocket").arg(self.socket_path());
        }
        if let Some(tls) = &config.tls {
            command.args(["--tls-port", &self.tls_port.to_string()]);
            command.args(tls);
        }
        if let Some(seconds) = config.clock_off {
            self.write_clock(seconds);
            command.envs(clock_from(&self.clock_path()));
        }
        command
            .args(&config.args)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("starting {}: {error}", program.display()))
    }

    fn log_path(&self) -> PathBuf {
        self.folder.path().join("redis.log")
    }

    /// Returns the last lines that the process logged.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        let mut tail = "the end of its log:\n".to_owned();
        for line in &lines[lines.len().saturating_sub(20)..] {
            writeln!(tail, "    {line}").expect("a string takes every write");
        }
        tail
    }
}

/// Returns the variables that make a process see a wall clock that is off by the number in this file.
/// Durations stay right.
fn clock_from(path: &Path) -> [(&'static str, OsString); 4] {
    // Redis allocates with jemalloc, which reads the clock when it starts and waits for libfaketime, which
    // allocates when it starts and waits for jemalloc. So the server gets the C library's allocator, from the
    // debug library of malloc. The whole C library in place of that would bring back the true clock.
    let preload = "libc_malloc_debug.so.0:/usr/$LIB/faketime/libfaketime.so.1";
    [
        ("LD_PRELOAD", preload.into()),
        ("FAKETIME_TIMESTAMP_FILE", path.into()),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ]
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
