//! Replaces `tls.rs` in a build without TLS.

use std::future::Ready;

use ::fred::types::config::{Config, Server};
use leasehold_engine::{Error, ErrorKind};
use tokio::net::TcpStream;

use crate::tls::Tls;

pub(super) fn name_node(_: &Config, _: &mut Server, _: &str) {}

/// Has no values: there is no TLS.
#[derive(Clone)]
pub(super) enum TlsClient {}

impl TlsClient {
    pub(super) fn new(_: &Tls) -> Result<Self, Error> {
        let message = "this program was built without TLS; turn on leasehold's feature tls-rustls";
        Err(Error::new(ErrorKind::Unsupported, message))
    }

    pub(super) fn configure(&self, _: &mut Config) {
        match *self {}
    }

    pub(super) fn refusal(&self, _: &str, _: TcpStream) -> Ready<Option<Error>> {
        match *self {}
    }
}
