//! Examines a server on a separate connection after connecting has failed. It detects that only one side
//! speaks TLS, or that one side does not trust the other. To most clients these are a timeout or a closed
//! connection.

use std::time::Duration;

use leasehold_engine::{Error, ErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::tls::TlsClient;

/// A first message of TLS 1.2 or 1.3, which every TLS server answers.
const HELLO: &[u8] = b"\x16\x03\x01\x00\x35\x01\x00\x00\x31\x03\x03\
    leasehold looks who answers here\x00\x00\x0a\
    \xc0\x2b\xc0\x2f\xc0\x2c\xc0\x30\x00\x2f\x01\x00";
const PING: &[u8] = b"PING\r\n";

const LIMIT: Duration = Duration::from_secs(1);

pub(super) struct Endpoint {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) tls: Option<TlsClient>,
}

impl Endpoint {
    /// Returns the cause of the failure, if it is one of these.
    pub(super) async fn look(&self) -> Option<Error> {
        let Some(tls) = &self.tls else {
            // The first byte of a TLS alert or of a handshake.
            let speaks = self
                .answer(HELLO)
                .await
                .is_some_and(|byte| matches!(byte, 0x15 | 0x16));
            return speaks.then(|| mistaken("the server speaks TLS, but the store's URL does not use it; connect to rediss://, or to another port"));
        };
        let refused = async { tls.refusal(&self.host, self.dial().await?).await };
        tokio::select! {
            Some(error) = limited(refused) => Some(error),
            Some(error) = self.speaks_plainly() => Some(error),
            else => None,
        }
    }

    async fn speaks_plainly(&self) -> Option<Error> {
        let speaks = matches!(self.answer(PING).await?, b'+' | b'-');
        speaks.then(|| mistaken("the server does not speak TLS, but the store's URL uses it; connect to redis://, or to the server's TLS port"))
    }

    /// Returns the first byte of the server's answer.
    async fn answer(&self, question: &[u8]) -> Option<u8> {
        let asked = async {
            let mut socket = self.dial().await?;
            socket.write_all(question).await.ok()?;
            socket.read_u8().await.ok()
        };
        limited(asked).await
    }

    async fn dial(&self) -> Option<TcpStream> {
        TcpStream::connect((self.host.as_str(), self.port))
            .await
            .ok()
    }
}

async fn limited<T>(look: impl Future<Output = Option<T>>) -> Option<T> {
    tokio::time::timeout(LIMIT, look).await.ok().flatten()
}

fn mistaken(message: &str) -> Error {
    Error::new(ErrorKind::Config, message)
}
