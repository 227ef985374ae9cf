//! A connection that sends commands and waits for their replies, without a runtime.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use leasehold_tests::Resp;

use crate::Result;

/// Longer than a server takes for any command here, even under valgrind.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self {
            stream,
            unread: Vec::new(),
        })
    }

    /// Returns the reply to a command. An error reply is an error here, too.
    pub(crate) fn command<P: AsRef<str>>(&mut self, command: &[P]) -> Result<Resp> {
        self.send(command)?;
        self.receive()
    }

    /// Sends a command that ends the server, and with it the connection.
    pub(crate) fn last_command(mut self, command: &[&str]) -> Result<()> {
        self.send(command)?;
        self.stream.read_to_end(&mut self.unread)?;
        match &self.unread[..] {
            [] => Ok(()),
            other => Err(String::from_utf8_lossy(other).into()),
        }
    }

    fn send<P: AsRef<str>>(&mut self, command: &[P]) -> Result<()> {
        let mut request = Vec::new();
        write!(request, "*{}\r\n", command.len())?;
        for part in command.iter().map(AsRef::as_ref) {
            write!(request, "${}\r\n{part}\r\n", part.len())?;
        }
        Ok(self.stream.write_all(&request)?)
    }

    fn receive(&mut self) -> Result<Resp> {
        loop {
            if let Some((value, length)) = Resp::parse(&self.unread) {
                self.unread.drain(..length);
                return match value {
                    Resp::Error(error) => Err(error.into()),
                    value => Ok(value),
                };
            }
            let mut bytes = [0; 16_384];
            match self.stream.read(&mut bytes)? {
                0 => return Err("the server closed the connection".into()),
                count => self.unread.extend_from_slice(&bytes[..count]),
            }
        }
    }
}
