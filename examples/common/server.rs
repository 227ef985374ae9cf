//! A `redis-server` of the example's own.

use std::fs::{self, DirBuilder};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::cli::Outcome;

const START_LIMIT: Duration = Duration::from_secs(5);
const ANSWER_LIMIT: Duration = Duration::from_millis(500);

/// A child process on a free loopback port, with a folder of its own, that keeps nothing on
/// disk. Dropping it kills it and removes the folder.
#[derive(Debug)]
pub struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Server {
    /// Starts one, and waits until it answers.
    pub async fn start() -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let folder = std::env::temp_dir().join(format!("leasehold-example-{}", std::process::id()));
        DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|error| format!("the folder {} cannot be made: {error}", folder.display()))?;
        let child = match spawn(&folder, port) {
            Ok(child) => child,
            Err(error) => {
                // It was made above, and is empty.
                let _ = fs::remove_dir(&folder);
                return Err(error);
            }
        };
        let mut server = Self {
            folder,
            port,
            child,
        };
        server.until_it_answers().await?;
        Ok(server)
    }

    /// Starts it again on the same port, with no data, and waits until it answers.
    pub async fn restart(&mut self) -> Outcome {
        self.kill().await?;
        self.child = spawn(&self.folder, self.port)?;
        self.until_it_answers().await
    }

    /// Kills the process, and waits for its end.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Its host and port.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Where it answers.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    async fn until_it_answers(&mut self) -> Outcome {
        let answers = async {
            loop {
                if let Some(status) = self.child.try_wait()? {
                    return Err(self.ended(status).into());
                }
                if let Ok(Ok(())) = timeout(ANSWER_LIMIT, ping(self.port)).await {
                    return Ok(());
                }
                sleep(Duration::from_millis(20)).await;
            }
        };
        match timeout(START_LIMIT, answers).await {
            Ok(outcome) => outcome,
            Err(_) => Err(format!("redis-server did not answer within {START_LIMIT:?}").into()),
        }
    }

    fn ended(&self, status: ExitStatus) -> String {
        let log = fs::read_to_string(log_of(&self.folder)).unwrap_or_default();
        let last = log.lines().last().unwrap_or("it logged nothing");
        format!("redis-server ended ({status}): {last}")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Errors are ignored: it may have ended by itself, and what cannot be removed is a short log.
        let _ = self.child.start_kill();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn spawn(folder: &Path, port: u16) -> Outcome<Child> {
    Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(log_of(folder))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C in a terminal goes to a whole process group, but the server must outlive the release.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => "redis-server is not installed: install it, for example by \
                 `apt-get install redis-server` or `brew install redis`, or give the --url of a \
                 server"
                .into(),
            _ => format!("redis-server cannot be started: {error}").into(),
        })
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("redis.log")
}

async fn ping(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(b"PING\r\n").await?;
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).await?;
    match &answer {
        b"+PONG" => Ok(()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
