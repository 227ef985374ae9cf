//! Certificates for tests, as files in a folder of their own.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

use crate::RedisServer;

/// A CA and the certificates that it signs.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    /// The file of the CA's own certificate.
    pub file: PathBuf,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file.
    pub key: PathBuf,
}

impl Authority {
    /// Makes a CA with this name.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("leasehold-ca-").tempdir();
        let folder = folder.expect("a folder can be made");
        let mut params = named(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.self_signed(&key).expect("valid parameters");
        let file = folder.path().join("ca.pem");
        fs::write(&file, certificate.pem()).expect("a file can be written");
        Self {
            folder,
            issuer: Issuer::new(params, key),
            file,
        }
    }

    /// Makes a certificate for a server with these names.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign("server", &server_params(names))
    }

    /// Makes an expired certificate.
    pub fn expired(&self) -> Pair {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign("expired", &params)
    }

    /// Makes a certificate that is not valid yet.
    pub fn not_valid_yet(&self) -> Pair {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.not_before = date_time_ymd(2999, 1, 1);
        params.not_after = date_time_ymd(3000, 1, 1);
        self.sign("early", &params)
    }

    /// Makes a certificate for a client.
    pub fn client(&self) -> Pair {
        let mut params = named("client", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign("client", &params)
    }

    /// Makes a self-signed certificate for a server.
    pub fn self_signed(&self) -> Pair {
        let key = KeyPair::generate().expect("a key can be made");
        let params = server_params(&["localhost", "127.0.0.1"]);
        let certificate = params.self_signed(&key).expect("valid parameters");
        self.write("own", &certificate.pem(), &key)
    }

    /// Starts a server with this certificate that trusts clients of this CA. If `asks`, it requires a client
    /// certificate.
    pub async fn start(&self, pair: &Pair, asks: bool) -> RedisServer {
        RedisServer::config()
            .tls(&pair.certificate, &pair.key, &self.file, asks)
            .start()
            .await
    }

    fn sign(&self, file: &str, params: &CertificateParams) -> Pair {
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params
            .signed_by(&key, &self.issuer)
            .expect("valid parameters");
        self.write(file, &certificate.pem(), &key)
    }

    fn write(&self, name: &str, certificate: &str, key: &KeyPair) -> Pair {
        let at = |end| self.folder.path().join(format!("{name}.{end}"));
        let pair = Pair {
            certificate: at("pem"),
            key: at("key"),
        };
        fs::write(&pair.certificate, certificate).expect("a file can be written");
        fs::write(&pair.key, key.serialize_pem()).expect("a file can be written");
        pair
    }
}

fn server_params(names: &[&str]) -> CertificateParams {
    let mut params = named("a server", names);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params
}

fn named(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
