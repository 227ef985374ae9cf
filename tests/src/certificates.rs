//! Certificates that are made for a test, as files in a folder of their own.

use std::fs;
use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use tempfile::TempDir;

use crate::RedisServer;

/// A CA and what it signs.
#[derive(Debug)]
pub struct Authority {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate.
    pub file: PathBuf,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// A file.
    pub certificate: PathBuf,
    /// Another.
    pub key: PathBuf,
}

impl Authority {
    /// One of this name.
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

    /// A certificate for a server of these names.
    pub fn server(&self, names: &[&str]) -> Pair {
        self.sign("server", &server_params(names))
    }

    /// A certificate whose time is over.
    pub fn expired(&self) -> Pair {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign("expired", &params)
    }

    /// One whose time is still to come.
    pub fn not_valid_yet(&self) -> Pair {
        let mut params = server_params(&["localhost", "127.0.0.1"]);
        params.not_before = date_time_ymd(2999, 1, 1);
        params.not_after = date_time_ymd(3000, 1, 1);
        self.sign("early", &params)
    }

    /// One for a client.
    pub fn client(&self) -> Pair {
        let mut params = named("client", &[]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign("client", &params)
    }

    /// One for a server that nobody but itself has signed.
    pub fn self_signed(&self) -> Pair {
        let key = KeyPair::generate().expect("a key can be made");
        let params = server_params(&["localhost", "127.0.0.1"]);
        let certificate = params.self_signed(&key).expect("valid parameters");
        self.write("own", &certificate.pem(), &key)
    }

    /// A server with such a certificate, that trusts the clients of this CA, and asks for their
    /// certificates or does not.
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
