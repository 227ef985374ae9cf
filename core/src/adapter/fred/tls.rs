//! TLS through rustls: fred's connector, and why one side refuses the other.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::fred::types::config::{Config, Server, ServerConfig, TlsConnector, TlsHostMapping};
use leasehold_engine::protocol::printable;
use leasehold_engine::{Error, ErrorKind};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore,
    SignatureScheme,
};

use crate::tls::{Pem, Tls};

/// How long to wait, after the handshake, for the server to refuse the client certificate.
const REFUSAL: Duration = Duration::from_millis(500);

/// The number of a certificate's names that an error shows.
const NAMES: usize = 5;

/// TLS settings of a client.
#[derive(Clone)]
pub(super) struct TlsClient {
    config: Arc<ClientConfig>,
    roots: Arc<RootCertStore>,
    server_name: Option<String>,
    /// True if it trusts the program's CAs instead of the system's.
    own_ca: bool,
    has_certificate: bool,
}

impl TlsClient {
    pub(super) fn new(tls: &Tls) -> Result<Self, Error> {
        if let Some(name) = &tls.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            let message =
                format!("the server name {name:?} is neither a DNS name nor an IP address");
            return Err(config_error(message));
        }
        let roots = Arc::new(match &tls.ca {
            Some(ca) => own_roots(ca)?,
            None => system_roots()?,
        });
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| config_error(format!("TLS cannot be used: {error}")))?
            .with_root_certificates(roots.clone());
        let config = match &tls.identity {
            None => builder.with_no_client_auth(),
            Some((certificates, key)) => {
                let chain = certificates_of(certificates, "client certificate")?;
                let named = |error| not_read(key, "client key", "private key", &error);
                let private = match key {
                    Pem::File(path) => PrivateKeyDer::from_pem_file(path),
                    Pem::Text(text) => PrivateKeyDer::from_pem_slice(text),
                };
                let private = private.map_err(named)?;
                let pair = builder.with_client_auth_cert(chain, private);
                pair.map_err(|error| no_pair(certificates, key, &error))?
            }
        };
        Ok(Self {
            config: Arc::new(config),
            roots,
            server_name: tls.server_name.clone(),
            own_ca: tls.ca.is_some(),
            has_certificate: tls.identity.is_some(),
        })
    }

    /// Makes fred connect with these settings.
    pub(super) fn configure(&self, config: &mut Config) {
        let connector = tokio_rustls::TlsConnector::from(self.config.clone());
        config.tls = Some(TlsConnector::from(connector).into());
        let servers = match &mut config.server {
            ServerConfig::Centralized { server } => std::slice::from_mut(server),
            ServerConfig::Sentinel { hosts, .. } => hosts.as_mut_slice(),
            _ => &mut [],
        };
        for server in servers {
            let (host, name) = (server.host.clone(), self.server_name.clone());
            *server = Server::new_with_tls(host, server.port, name);
        }
    }

    /// Tries a handshake, and returns who refuses whom and why, if that is the problem.
    pub(super) async fn refusal(&self, host: &str, socket: TcpStream) -> Option<Error> {
        let name = self.server_name.as_deref().unwrap_or(host);
        let server = ServerName::try_from(name.to_owned()).ok()?;
        let verifier = Arc::new(Verifier::new(self)?);
        let mut config = (*self.config).clone();
        config
            .dangerous()
            .set_certificate_verifier(verifier.clone());
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let failed = match connector.connect(server, socket).await {
            Err(error) => error,
            // With TLS 1.3 a server checks a client certificate after the client has finished.
            Ok(mut stream) => {
                let read = tokio::time::timeout(REFUSAL, stream.read_u8()).await;
                read.ok()?.err()?
            }
        };
        let error = failed.get_ref()?.downcast_ref::<rustls::Error>()?;
        self.explain(error, name, verifier.is_self_signed())
    }

    fn explain(&self, error: &rustls::Error, name: &str, is_self_signed: bool) -> Option<Error> {
        let message = match error {
            rustls::Error::InvalidCertificate(why) => self.distrusted(why, name, is_self_signed),
            rustls::Error::AlertReceived(alert) => self.alerted(*alert)?,
            rustls::Error::PeerIncompatible(_) => {
                "the server supports no safe TLS version or cipher; it must support TLS 1.2 or 1.3"
                    .into()
            }
            _ => return None,
        };
        Some(Error::with_source(ErrorKind::Tls, message, error.clone()))
    }

    /// Describes the fault of the server's certificate.
    fn distrusted(&self, why: &CertificateError, name: &str, is_self_signed: bool) -> String {
        match why {
            CertificateError::Expired => "the server's certificate has expired; renew it there, or set this machine's clock".into(),
            CertificateError::ExpiredContext { time, not_after } => format!(
                "the server's certificate expired {} ago; renew it there, or set this machine's clock",
                span(*not_after, *time)
            ),
            CertificateError::NotValidYetContext { time, not_before } => format!(
                "the server's certificate is not valid for another {}; set this machine's clock, or the server's",
                span(*time, *not_before)
            ),
            CertificateError::NotValidForNameContext { presented, .. } => wrong_name(name, presented),
            CertificateError::UnknownIssuer if is_self_signed => {
                "the server's certificate is self-signed and not trusted; give its file as ca".into()
            }
            CertificateError::UnknownIssuer if self.own_ca => {
                "the server's certificate is not signed by the CA that was given; give the right one as ca".into()
            }
            CertificateError::UnknownIssuer => {
                "the server's certificate is signed by a CA that this system does not trust; give that CA's file as ca".into()
            }
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                "the server's certificate is a CA certificate; give the server a certificate that this CA has signed".into()
            }
            CertificateError::InvalidPurposeContext { .. } => {
                "the server's certificate is not valid for servers; it needs the extended key usage serverAuth".into()
            }
            why => format!("the server's certificate cannot be trusted ({why:?})"),
        }
    }

    /// Describes an alert with which the server ended the connection.
    fn alerted(&self, alert: AlertDescription) -> Option<String> {
        use AlertDescription as Alert;
        Some(match alert {
            // Servers of TLS 1.2 say no more than this to a client without a certificate.
            Alert::CertificateRequired | Alert::HandshakeFailure if !self.has_certificate => {
                "the server wants a client certificate; give cert and key".into()
            }
            Alert::CertificateExpired => "the server refused the client certificate: it has expired; renew it".into(),
            Alert::CertificateRevoked => "the server refused the client certificate: it was revoked; renew it".into(),
            Alert::UnknownCA => "the server refused the client certificate, because it does not trust the CA that signed it; give one from a CA that the server trusts".into(),
            Alert::NoCertificate | Alert::BadCertificate | Alert::UnsupportedCertificate | Alert::CertificateUnknown | Alert::DecryptError | Alert::AccessDenied => {
                format!("the server refused the client certificate ({alert:?})")
            }
            Alert::ProtocolVersion => "the server supports no safe TLS version; it must support TLS 1.2 or 1.3".into(),
            Alert::UnrecognisedName => "the server does not recognize this server name (SNI); give its name as serverName".into(),
            Alert::CloseNotify | Alert::UserCanceled => return None,
            alert => format!("the server refused TLS ({alert:?})"),
        })
    }
}

/// Verifies a certificate as a connection does, and finds out whether it is self-signed.
#[derive(Debug)]
struct Verifier {
    inner: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    self_signed: AtomicBool,
}

impl Verifier {
    fn new(tls: &TlsClient) -> Option<Self> {
        let provider = tls.config.crypto_provider().clone();
        let verifier =
            WebPkiServerVerifier::builder_with_provider(tls.roots.clone(), provider.clone());
        Some(Self {
            inner: verifier.build().ok()?,
            provider,
            self_signed: AtomicBool::new(false),
        })
    }

    fn is_self_signed(&self) -> bool {
        self.self_signed.load(Ordering::Acquire)
    }

    /// Returns true if the certificate verifies with itself as the only root.
    fn has_signed_itself(
        &self,
        certificate: &CertificateDer<'_>,
        server: &ServerName<'_>,
        now: UnixTime,
    ) -> bool {
        let mut roots = RootCertStore::empty();
        if roots.add(certificate.clone().into_owned()).is_err() {
            return false;
        }
        let alone =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), self.provider.clone());
        let Ok(alone) = alone.build() else {
            return false;
        };
        let verified = alone.verify_server_cert(certificate, &[], server, &[], now);
        !matches!(
            verified,
            Err(rustls::Error::InvalidCertificate(
                CertificateError::UnknownIssuer
            ))
        )
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self
            .inner
            .verify_server_cert(certificate, chain, server, ocsp, now);
        if verified.is_err() {
            let is = self.has_signed_itself(certificate, server, now);
            self.self_signed.store(is, Ordering::Release);
        }
        verified
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Systems have some certificates that nothing can parse; other programs skip them too.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found
            .errors
            .first()
            .map_or_else(String::new, |error| format!(" ({error})"));
        return Err(config_error(format!(
            "no CAs that this system trusts were found{why}; give one as ca"
        )));
    }
    Ok(roots)
}

fn own_roots(ca: &Pem) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of(ca, "ca")? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            config_error(format!(
                "{} has a certificate that cannot be read ({error})",
                shown(ca, "ca")
            ))
        })?;
    }
    Ok(roots)
}

fn certificates_of(source: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let read = match source {
        Pem::File(path) => CertificateDer::pem_file_iter(path).and_then(Iterator::collect),
        Pem::Text(text) => CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>(),
    };
    let read = read.and_then(|found: Vec<_>| match found.len() {
        0 => Err(pem::Error::NoItemsFound),
        _ => Ok(found),
    });
    read.map_err(|error| not_read(source, what, "certificate", &error))
}

/// The error for a file or text that does not contain what it should.
fn not_read(source: &Pem, what: &str, item: &str, error: &pem::Error) -> Error {
    let shown = shown(source, what);
    config_error(match error {
        pem::Error::Io(error) => format!("{shown} cannot be read: {}", io_reason(error)),
        pem::Error::NoItemsFound => format!("{shown} has no {item} in PEM"),
        // The error's message may contain a part of a key.
        _ => format!("{shown} is not valid PEM"),
    })
}

fn io_reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        kind => kind.to_string(),
    }
}

fn no_pair(certificates: &Pem, key: &Pem, error: &rustls::Error) -> Error {
    let (certificates, key) = (
        shown(certificates, "client certificate"),
        shown(key, "client key"),
    );
    config_error(match error {
        rustls::Error::InconsistentKeys(_) => format!("{key} is not the key of {certificates}"),
        error => format!("{certificates} and {key} cannot be used: {error}"),
    })
}

fn shown(source: &Pem, what: &str) -> String {
    match source {
        Pem::File(path) => {
            let path = printable(&path.display().to_string());
            format!("the {what} file {path}")
        }
        Pem::Text(_) => format!("the {what} that was given"),
    }
}

/// Sets the name that a cluster node's certificate must have, if the program's client maps names.
pub(super) fn name_node(config: &Config, server: &mut Server, seed: &str) {
    let hosts = config.tls.as_ref().map(|tls| &tls.hostnames);
    let address = server.host.parse::<std::net::IpAddr>().ok();
    let name = match (hosts, address) {
        (Some(TlsHostMapping::DefaultHost), Some(_)) => Some(seed.to_owned()),
        (Some(TlsHostMapping::Custom(hosts)), Some(address)) => hosts.map(&address, seed),
        _ => None,
    };
    if name.is_some() {
        *server = Server::new_with_tls(server.host.clone(), server.port, name);
    }
}

fn config_error(message: impl AsRef<str>) -> Error {
    Error::new(ErrorKind::Config, message)
}

/// The error for a certificate without the right name. Its names come from the server, so they are escaped.
fn wrong_name(name: &str, presented: &[String]) -> String {
    let mut of = String::new();
    for presented in presented.iter().take(NAMES) {
        let before = if of.is_empty() { " is for" } else { "," };
        // `DnsName("localhost")`, `IpAddress(127.0.0.1)`.
        let presented = presented
            .split_once('(')
            .map_or(presented.as_str(), |(_, rest)| rest);
        let presented: String = presented
            .trim_matches(['"', '(', ')'])
            .escape_default()
            .take(100)
            .collect();
        // Writing to a string cannot fail.
        let _ = write!(of, "{before} {presented}");
    }
    if presented.len() > NAMES {
        of.push_str(", …");
    }
    let of = if of.is_empty() {
        " has no names,"
    } else {
        of.as_str()
    };
    let and = if presented.is_empty() {
        "and is"
    } else {
        "and"
    };
    format!(
        "the server's certificate{of} {and} not for {name}; connect by a name that is in it, or give one as serverName"
    )
}

/// Formats the time from one to the other.
fn span(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}
