use std::io;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};

use crate::Outcome;

const START_LIMIT: Duration = Duration::from_secs(10);

/// A `redis-server` of the demonstration's own, on a free loopback port, that keeps nothing on disk.
/// Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    port: u16,
    child: Child,
}

impl Server {
    /// Starts one, and waits until it listens.
    pub async fn start() -> Outcome<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = spawn(port)?;
        let mut server = Self { port, child };
        server.until_it_listens().await?;
        Ok(server)
    }

    /// Starts it again on the same port, with no data, and waits until it listens.
    pub async fn restart(&mut self) -> Outcome {
        self.kill().await?;
        self.child = spawn(self.port)?;
        self.until_it_listens().await
    }

    /// Kills the process, and waits for its end.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.child.kill().await
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    async fn until_it_listens(&mut self) -> Outcome {
        let listens = async {
            while TcpStream::connect(("127.0.0.1", self.port)).await.is_err() {
                if let Some(status) = self.child.try_wait()? {
                    return Err(format!("redis-server ended: {status}").into());
                }
                sleep(Duration::from_millis(20)).await;
            }
            Ok(())
        };
        let late = || format!("redis-server did not listen within {START_LIMIT:?}");
        timeout(START_LIMIT, listens).await.map_err(|_| late())?
    }
}

fn spawn(port: u16) -> Outcome<Child> {
    let child = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--port", &port.to_string()])
        .args(["--save", "", "--appendonly", "no"])
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    child.map_err(|error| {
        let advice =
            "install it, for example by `apt-get install redis-server` or `brew install redis`";
        format!("redis-server cannot be started: {error}; {advice}").into()
    })
}
