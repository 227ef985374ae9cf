//! A plain connection to a server.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::value::{Resp, encode_command};
use crate::RedisServer;

/// Longer than any answer takes of a server that is neither paused nor gone.
const REPLY_LIMIT: Duration = Duration::from_secs(10);

/// A connection that sends one command at a time and waits for its reply.
///
/// Its own commands also count in the server's statistics.
#[derive(Debug)]
pub struct Admin {
    stream: TcpStream,
    unread: Vec<u8>,
    /// Set if a reply did not arrive in time: a late reply would be taken for that of the next command.
    timed_out: bool,
}

impl Admin {
    /// Connects to `server`, and authenticates if it asks for a password.
    pub async fn connect(server: &RedisServer) -> Self {
        Self::try_connect(server.port(), server.password())
            .await
            .unwrap_or_else(|error| {
                panic!(
                    "connecting to the server on port {}: {error}",
                    server.port()
                )
            })
    }

    /// Connects to whatever listens on that loopback port, such as a proxy or a fake server.
    pub async fn connect_port(port: u16) -> Self {
        Self::try_connect(port, None)
            .await
            .unwrap_or_else(|error| panic!("connecting to port {port}: {error}"))
    }

    /// Connects to whatever listens on that loopback port, with this password if there is one.
    pub async fn try_connect(port: u16, password: Option<&str>) -> io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        let mut admin = Self {
            stream,
            unread: Vec::new(),
            timed_out: false,
        };
        if let Some(password) = password {
            match admin.try_command(&["AUTH", password]).await? {
                Resp::Error(error) => return Err(io::Error::other(error)),
                _ => return Ok(admin),
            }
        }
        Ok(admin)
    }

    /// Runs a command. Panics if the connection fails or there is no reply within 10 s; an error reply is a
    /// [`Resp::Error`].
    pub async fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Resp {
        self.try_command(args).await.unwrap_or_else(|error| {
            let name = args
                .first()
                .map_or("".into(), |arg| String::from_utf8_lossy(arg.as_ref()));
            panic!("{name} to {:?}: {error}", self.stream.peer_addr())
        })
    }

    /// Runs a command. A failed connection, or no reply within 10 s, is an error.
    pub async fn try_command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Resp> {
        if self.timed_out {
            return Err(io::Error::other(
                "an earlier command got no reply: connect again",
            ));
        }
        // The caller may also drop this future: then the reply may arrive at any time.
        self.timed_out = true;
        let work = async {
            self.stream.write_all(&encode_command(args)).await?;
            self.next_value().await
        };
        let reply = timeout(REPLY_LIMIT, work)
            .await
            .map_err(|_| io::ErrorKind::TimedOut)?;
        self.timed_out = false;
        reply
    }

    /// Reads the next value, whether a command asked for it or not, such as a message or a monitor's line.
    pub async fn next_value(&mut self) -> io::Result<Resp> {
        loop {
            if let Some((value, length)) = Resp::parse(&self.unread) {
                self.unread.drain(..length);
                return Ok(value);
            }
            if self.stream.read_buf(&mut self.unread).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Runs a command whose reply is a number (an integer or a string of digits).
    pub async fn int<A: AsRef<[u8]>>(&mut self, args: &[A]) -> i64 {
        let reply = self.command(args).await;
        reply
            .as_int()
            .unwrap_or_else(|| panic!("expected a number, got {reply:?}"))
    }

    /// Runs a command whose reply is a string or nil.
    pub async fn string<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Option<String> {
        match self.command(args).await {
            reply @ (Resp::Simple(_) | Resp::Bulk(Some(_))) => reply.as_string(),
            Resp::Bulk(None) => None,
            reply => panic!("expected a string or nil, got {reply:?}"),
        }
    }

    /// Runs a command whose reply must be OK.
    pub async fn ok<A: AsRef<[u8]>>(&mut self, args: &[A]) {
        assert_eq!(self.command(args).await, Resp::Simple("OK".into()));
    }

    /// Returns the value of one field of INFO, or `None` if there is no such field.
    pub async fn info(&mut self, section: &str, field: &str) -> Option<String> {
        let text = self
            .string(&["INFO", section])
            .await
            .expect("INFO answers with a text");
        text.lines()
            .find_map(|line| Some(line.strip_prefix(field)?.strip_prefix(':')?.to_owned()))
    }

    /// Returns how often the server has run the command, with all its subcommands, since its start or
    /// [`Self::reset_stats`]. A name such as `cluster|slots` is that of one subcommand. Calls from within scripts
    /// count too.
    pub async fn command_calls(&mut self, name: &str) -> u64 {
        let text = self
            .string(&["INFO", "commandstats"])
            .await
            .expect("INFO answers with a text");
        let name = name.to_lowercase();
        let calls = text.lines().filter_map(|line| {
            let (command, stats) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
            let called = command == name || command.split('|').next() == Some(&name);
            called.then(|| {
                stats
                    .split(',')
                    .next()
                    .and_then(|calls| calls.parse::<u64>().ok())
            })?
        });
        calls.sum()
    }

    /// Returns how many scripts clients have run: EVAL, EVALSHA, FCALL and their read-only forms. An EVALSHA
    /// that was answered with NOSCRIPT counts.
    pub async fn script_calls(&mut self) -> u64 {
        let mut sum = 0;
        for name in [
            "eval",
            "evalsha",
            "eval_ro",
            "evalsha_ro",
            "fcall",
            "fcall_ro",
        ] {
            sum += self.command_calls(name).await;
        }
        sum
    }

    /// Returns how many lockers have confirmed their subscription. From then on the server also tracks their
    /// keys on that connection.
    pub async fn hearing_lockers(&mut self) -> usize {
        let mut list = async |kind| {
            let list = ["CLIENT", "LIST", "TYPE", kind];
            self.string(&list).await.unwrap_or_default()
        };
        let fields = |list: &str, name: &str| -> Vec<String> {
            let words = list.split_whitespace();
            let values = words.filter_map(|word| word.strip_prefix(name));
            values.map(str::to_owned).collect()
        };
        let ears = fields(&list("pubsub").await, "id=");
        let to = fields(&list("normal").await, "redir=");
        to.iter().filter(|ear| ears.contains(ear)).count()
    }

    /// Sets all statistics to zero (CONFIG RESETSTAT).
    pub async fn reset_stats(&mut self) {
        self.ok(&["CONFIG", "RESETSTAT"]).await;
    }

    /// Deletes all keys.
    pub async fn flushall(&mut self) {
        self.ok(&["FLUSHALL"]).await;
    }

    /// Returns the keys that match the pattern, sorted.
    pub async fn keys(&mut self, pattern: &str) -> Vec<String> {
        let Resp::Array(keys) = self.command(&["KEYS", pattern]).await else {
            panic!("KEYS answers with an array");
        };
        let mut keys: Vec<String> = keys.iter().filter_map(Resp::as_string).collect();
        keys.sort();
        keys
    }

    /// Closes the connections of all other clients, and returns how many there were.
    pub async fn kill_clients(&mut self) -> i64 {
        let mut killed = 0;
        for kind in ["normal", "pubsub"] {
            killed += self
                .int(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"])
                .await;
        }
        killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_admin_reads_values_and_statistics() {
        let server = RedisServer::start().await;
        let mut admin = Admin::connect(&server).await;
        let binary = [b"SET".as_slice(), b"k\r\n", b"\xff\x00"];
        admin.ok(&binary).await;
        let read = admin.command(&[b"GET".as_slice(), b"k\r\n"]).await;
        assert_eq!(read, Resp::Bulk(Some(b"\xff\x00".to_vec())));
        assert_eq!(admin.string(&["GET", "none"]).await, None);
        assert_eq!(admin.int(&["INCR", "n"]).await, 1);
        assert_eq!(admin.keys("*").await, ["k\r\n", "n"]);
        assert!(matches!(admin.command(&["NOPE"]).await, Resp::Error(_)));

        assert_eq!(admin.command_calls("GET").await, 2);
        admin.ok(&["CLIENT", "SETNAME", "admin"]).await;
        assert_eq!(admin.command_calls("client").await, 1);
        admin
            .int(&["EVAL", "return redis.call('get', KEYS[1])", "1", "n"])
            .await;
        assert_eq!(admin.script_calls().await, 1);
        assert_eq!(admin.command_calls("get").await, 3);
        admin.reset_stats().await;
        assert_eq!(admin.command_calls("get").await, 0);

        admin.flushall().await;
        assert!(admin.keys("*").await.is_empty());
        assert_eq!(
            admin.info("server", "tcp_port").await,
            Some(server.port().to_string())
        );
    }

    #[tokio::test]
    async fn an_admin_kills_other_clients() {
        let server = RedisServer::start().await;
        let mut admin = Admin::connect(&server).await;
        let mut other = Admin::connect(&server).await;
        assert_eq!(other.int(&["DBSIZE"]).await, 0);
        assert_eq!(admin.kill_clients().await, 1);
        assert!(other.try_command(&["PING"]).await.is_err());
        admin.flushall().await;
    }
}
