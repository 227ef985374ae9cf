//! TLS settings for `rediss://` URLs.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// TLS settings for `rediss://` URLs: whom to trust, and the client's certificate.
///
/// Give them to [`Builder::tls`](crate::Builder::tls). A parameter of the URL takes precedence. By default a
/// locker trusts the system's CAs and shows no certificate of its own.
///
/// Certificates and keys are PEM. The call that makes the locker reads each file once. It fails with
/// [`Config`](crate::ErrorKind::Config) and names the file if it cannot be read or has nothing usable in it.
///
/// | method | parameter of the URL |
/// |---|---|
/// | [`ca_file`](Self::ca_file), [`ca_pem`](Self::ca_pem) | `ca=FILE` |
/// | [`client_files`](Self::client_files), [`client_pem`](Self::client_pem) | `cert=FILE&key=FILE` |
/// | [`server_name`](Self::server_name) | `serverName=NAME` |
///
/// ```no_run
/// # async fn example() -> Result<(), leasehold::Error> {
/// use leasehold::{Locker, Tls};
///
/// let tls = Tls::new()
///     .ca_file("/etc/redis/ca.pem")
///     .client_files("/etc/app/client.pem", "/etc/app/client.key");
/// let locker = Locker::builder().tls(tls).connect("rediss://redis.internal").await?;
/// // The same as a URL.
/// let locker = Locker::connect(
///     "rediss://redis.internal?ca=/etc/redis/ca.pem&cert=/etc/app/client.pem&key=/etc/app/client.key",
/// )
/// .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Tls {
    pub(crate) ca: Option<Pem>,
    /// A certificate with its chain, and the certificate's key.
    pub(crate) identity: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<String>,
}

/// PEM text, or the file that has it.
#[derive(Clone)]
pub(crate) enum Pem {
    File(PathBuf),
    #[cfg_attr(
        not(feature = "tls-rustls"),
        expect(dead_code, reason = "only TLS reads it")
    )]
    Text(Arc<[u8]>),
}

impl Tls {
    /// Returns the defaults: trust the system's CAs, and show no client certificate.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), leasehold::Error> {
    /// use leasehold::{Locker, Tls};
    ///
    /// let tls = Tls::new().server_name("redis.internal");
    /// let locker = Locker::builder().tls(tls).connect("rediss://10.0.0.7").await?;
    /// # Ok(()) }
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the CAs in this file, and no others.
    ///
    /// ```
    /// # #[tokio::main] async fn main() {
    /// use leasehold::{Locker, Tls};
    ///
    /// let tls = Tls::new().ca_file("/no/such/ca.pem");
    /// let error = Locker::builder().tls(tls).connect("rediss://127.0.0.1").await.unwrap_err();
    /// assert!(error.is_config());
    /// # if cfg!(feature = "tls-rustls") {
    /// assert!(error.to_string().contains("/no/such/ca.pem"));
    /// # }
    /// # }
    /// ```
    #[must_use]
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.ca = Some(Pem::file(path));
        self
    }

    /// Trusts these CAs, and no others.
    ///
    /// ```
    /// let tls = leasehold::Tls::new().ca_pem("-----BEGIN CERTIFICATE-----\n…");
    /// ```
    #[must_use]
    pub fn ca_pem(mut self, certificates: impl AsRef<[u8]>) -> Self {
        self.ca = Some(Pem::text(certificates));
        self
    }

    /// Shows the server the certificate in the first file, with its private key in the second.
    ///
    /// Intermediate certificates may follow the certificate in its file.
    ///
    /// ```
    /// let tls = leasehold::Tls::new().client_files("/etc/app/client.pem", "/etc/app/client.key");
    /// ```
    #[must_use]
    pub fn client_files(mut self, certificates: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.identity = Some((Pem::file(certificates), Pem::file(key)));
        self
    }

    /// Shows the server this certificate, with its private key.
    ///
    /// As [`client_files`](Self::client_files), with the PEM itself.
    ///
    /// ```
    /// let (certificate, key) = ("-----BEGIN CERTIFICATE-----\n…", "-----BEGIN PRIVATE KEY-----\n…");
    /// let tls = leasehold::Tls::new().client_pem(certificate, key);
    /// ```
    #[must_use]
    pub fn client_pem(mut self, certificates: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.identity = Some((Pem::text(certificates), Pem::text(key)));
        self
    }

    /// Sets the name that the server's certificate must carry, if it is not the URL's host.
    ///
    /// The name is a DNS name or an IP address.
    ///
    /// ```
    /// let tls = leasehold::Tls::new().server_name("redis.internal");
    /// ```
    #[must_use]
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }
}

impl Pem {
    fn file(path: impl AsRef<Path>) -> Self {
        Self::File(path.as_ref().to_owned())
    }

    fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(text.as_ref().into())
    }
}

/// Omits PEM text, which may be a private key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.fmt(f),
            Self::Text(_) => f.write_str("PEM"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Catches a private key in a log.
    #[test]
    fn the_debug_form_shows_no_pem() {
        let shown = format!("{:?}", Tls::new().ca_file("a").client_pem("c", "secret"));
        let expected = r#"Tls { ca: Some("a"), identity: Some((PEM, PEM)), server_name: None }"#;
        assert_eq!(shown, expected);
    }
}
