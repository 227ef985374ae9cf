//! The grammar of store URLs.
//!
//! `bindings/node/src/adapters/url.ts` has the same grammar. `tests/vectors/urls.json` lists what both accept
//! and refuse.
//!
//! A URL may hold a password. An error shows no more of a URL than its scheme and its hosts and ports, or its
//! socket. It omits even those where they may be a piece of a password.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

use leasehold_engine::{Error, ErrorKind};
use percent_encoding::percent_decode_str;

/// The parts of a store URL, decoded.
#[derive(Debug, Default)]
pub(crate) struct StoreUrl {
    pub(crate) kind: Kind,
    /// The server, the nodes or the sentinels. Empty for a socket and for an in-memory store.
    pub(crate) nodes: Vec<Node>,
    pub(crate) tls: bool,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<u8>,
    /// The socket's path, the sentinels' service, or the name of an in-memory store.
    pub(crate) name: String,
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password: Option<String>,
    /// PEM files, and the name that the server's certificate must carry.
    pub(crate) ca: Option<String>,
    pub(crate) cert: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) server_name: Option<String>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Memory,
    Socket,
    Server,
    Cluster,
    Sentinel,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

const SCHEMES: [(&str, Kind, bool); 8] = [
    ("memory", Kind::Memory, false),
    ("unix", Kind::Socket, false),
    ("redis", Kind::Server, false),
    ("rediss", Kind::Server, true),
    ("redis-cluster", Kind::Cluster, false),
    ("rediss-cluster", Kind::Cluster, true),
    ("redis-sentinel", Kind::Sentinel, false),
    ("rediss-sentinel", Kind::Sentinel, true),
];

const TLS_PARAMETERS: [&str; 4] = ["ca", "cert", "key", "serverName"];

const ENCODE: &str = "percent-encode / ? # and @ in a password";

const FRAGMENT: &str = "the store's URL has a fragment (#…); percent-encode special characters";

/// Why a URL is not valid.
type Wrong = String;

/// The URL forms that are supported.
const FORMS: &str = "redis://[user:password@]host[:port][/database] (rediss:// for TLS), \
                     unix:///path/to/socket[?db=database], \
                     redis-cluster://host[:port],host[:port],…, \
                     redis-sentinel://host[:port],host[:port],…/service[/database] or memory://[name]";

/// Parses a URL.
pub(crate) fn parse(text: &str) -> Result<StoreUrl, Error> {
    read(text).map_err(|wrong| bad(&wrong))
}

/// Returns the error for a bad URL, or for a setting that does not fit the URL.
pub(crate) fn bad(what: &str) -> Error {
    let message = format!("{what}; a store's URL has the form {FORMS}");
    Error::new(ErrorKind::Config, message)
}

fn read(text: &str) -> Result<StoreUrl, Wrong> {
    let text = text.trim();
    if let Some((scheme, name)) = text.split_once(':')
        && known(scheme) == Some((Kind::Memory, false))
    {
        return memory(name.strip_prefix("//").unwrap_or(name));
    }
    let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_word(scheme)) else {
        let scheme = text.split(':').next().unwrap_or_default();
        return Err(match known(scheme) {
            Some(_) if text.contains(':') => "the store's URL has no // after its scheme".into(),
            _ => "the store's URL has no scheme".into(),
        });
    };
    if text.contains(char::is_control) {
        return Err("the store's URL contains a control character".into());
    }
    if text.contains('#') {
        return Err(FRAGMENT.into());
    }
    let (kind, tls) = known(scheme)
        .ok_or_else(|| format!("the store's URL has the unknown scheme {scheme:?}"))?;
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut url = StoreUrl {
        kind,
        tls,
        ..StoreUrl::default()
    };
    let hosts = url.take_credentials(authority)?;
    // If the text has an `@`, a host or a parameter may be the rest of a password.
    let may_name = !text.contains('@');
    url.take_hosts(hosts, may_name)?;
    let parameters = Parameters {
        known: url.parameters(),
        may_name,
    };
    let parameters = parameters.read(query.unwrap_or_default())?;
    url.take_parameters(parameters, may_name)?;
    url.take_path(path)?;
    url.check()?;
    Ok(url)
}

fn memory(name: &str) -> Result<StoreUrl, Wrong> {
    if name.contains('#') {
        return Err(FRAGMENT.into());
    }
    if name.contains(['?', '@']) {
        return Err("a memory:// URL takes only a name".into());
    }
    // The first part is the host, as in a server's URL.
    let host = name.split('/').next().unwrap_or_default();
    let name = match decoded(name, "name") {
        Ok(decoded) if !name.contains(char::is_control) && !host.contains(' ') => decoded,
        _ => return Err("the name in the store's URL is not valid; percent-encode spaces, control characters and %".into()),
    };
    Ok(StoreUrl {
        name,
        ..StoreUrl::default()
    })
}

const NO_PASSWORD: &str =
    "the store's URL has a user and no password; add the password (any, for a user who needs none)";

impl StoreUrl {
    /// Reads the credentials and returns the hosts after them.
    fn take_credentials<'a>(&mut self, authority: &'a str) -> Result<&'a str, Wrong> {
        let Some((credentials, hosts)) = authority.rsplit_once('@') else {
            return Ok(authority);
        };
        let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        self.username = some(decoded(username, "user")?);
        self.password = some(decoded(password, "password")?);
        Ok(hosts)
    }

    fn take_hosts(&mut self, hosts: &str, may_name: bool) -> Result<(), Wrong> {
        if self.kind == Kind::Socket {
            return match hosts {
                "" => Ok(()),
                _ => Err("the store's URL names no socket path".into()),
            };
        }
        for host in hosts.split(',') {
            let node = self.node(host, may_name)?;
            self.nodes.push(node);
        }
        if self.kind == Kind::Server && self.nodes.len() > 1 {
            return Err("the store's URL names several hosts, which only redis-cluster:// and redis-sentinel:// may".into());
        }
        Ok(())
    }

    fn node(&self, text: &str, may_name: bool) -> Result<Node, Wrong> {
        let end = text.find(']').map_or(0, |end| end + 1);
        let (host, port) = match text[end..].find(':') {
            Some(at) => (&text[..end + at], Some(&text[end + at + 1..])),
            None => (text, None),
        };
        if host.is_empty() && port.is_none_or(|port| !port.contains(':')) {
            return Err("the store's URL names no host".into());
        }
        if port.is_some_and(|port| port.contains(':')) {
            return Err("an IPv6 address in the store's URL must be in brackets".into());
        }
        let bare = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) if address.parse::<Ipv6Addr>().is_ok() => address,
            Some(_) => {
                return Err(
                    "a host in the store's URL is in brackets but is not an IPv6 address".into(),
                );
            }
            None if host.bytes().all(is_of_host) => host,
            None => {
                return Err(format!(
                    "a host in the store's URL contains an invalid character; {ENCODE}"
                ));
            }
        };
        let usual = if self.kind == Kind::Sentinel {
            26_379
        } else {
            6_379
        };
        let port = port.map_or(Some(usual), |digits| {
            number(digits).filter(|port| *port > 0)
        });
        let of = if may_name {
            format!(" of {host:?}")
        } else {
            String::new()
        };
        let port = port.ok_or_else(|| {
            format!("the port{of} in the store's URL must be a number from 1 to 65535")
        })?;
        Ok(Node {
            host: bare.into(),
            port,
        })
    }

    /// Returns the parameters that a URL of this kind accepts, besides those for TLS.
    fn parameters(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Memory | Kind::Server => &[],
            Kind::Socket => &["db"],
            Kind::Cluster => &["node"],
            Kind::Sentinel => &[
                "node",
                "sentinelServiceName",
                "sentinelUsername",
                "sentinelPassword",
            ],
        }
    }

    fn take_parameters(
        &mut self,
        parameters: Vec<(&str, String)>,
        may_name: bool,
    ) -> Result<(), Wrong> {
        for (name, value) in parameters {
            if !self.tls && TLS_PARAMETERS.contains(&name) {
                return Err(format!(
                    "the parameter {name:?} in the store's URL needs TLS; use a scheme that begins with rediss"
                ));
            }
            match name {
                "node" => {
                    let node = self.node(&value, may_name)?;
                    self.nodes.push(node);
                }
                "db" => self.database = Some(database(&value)?),
                "sentinelServiceName" => self.name = value,
                "sentinelUsername" => self.sentinel_username = Some(value),
                "sentinelPassword" => self.sentinel_password = Some(value),
                "ca" => self.ca = Some(value),
                "cert" => self.cert = Some(value),
                "key" => self.key = Some(value),
                _ => self.server_name = Some(value),
            }
        }
        Ok(())
    }

    fn take_path(&mut self, path: &str) -> Result<(), Wrong> {
        if self.kind == Kind::Socket {
            self.name = decoded(path, "path")?;
            return match self.name.len() {
                0 | 1 => Err("the store's URL names no socket path".into()),
                _ => Ok(()),
            };
        }
        let mut path = path.strip_prefix('/').unwrap_or_default();
        if self.kind == Kind::Sentinel && self.name.is_empty() {
            let (service, rest) = path.split_once('/').unwrap_or((path, ""));
            self.name = decoded(service, "service")?;
            path = rest;
        }
        match (self.kind, path) {
            (_, "") => {}
            (Kind::Cluster, _) => {
                return Err(
                    "the store's URL names a database, but a cluster has none to select".into(),
                );
            }
            _ => self.database = Some(database(path)?),
        }
        Ok(())
    }

    fn check(&self) -> Result<(), Wrong> {
        if self.kind == Kind::Sentinel && self.name.is_empty() {
            return Err("the store's URL names no sentinel service".into());
        }
        // Without a password clients send no user either, and would have the rights of the default user.
        let users = [
            (&self.username, &self.password),
            (&self.sentinel_username, &self.sentinel_password),
        ];
        if users
            .iter()
            .any(|(user, password)| user.is_some() && password.is_none())
        {
            return Err(NO_PASSWORD.into());
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err(
                "the parameters \"cert\" and \"key\" in the store's URL must be given together"
                    .into(),
            );
        }
        Ok(())
    }
}

/// Shows the scheme and the first node, or the socket. Never shows credentials.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |(_, kind, tls): &&(&str, Kind, bool)| (*kind, *tls) == (self.kind, self.tls);
        let scheme = SCHEMES.iter().find(of).map_or("", |(scheme, ..)| scheme);
        write!(f, "{scheme}://")?;
        match self.nodes.first() {
            Some(node) => node.fmt(f),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') {
            return write!(f, "[{host}]:{port}");
        }
        write!(f, "{host}:{port}")
    }
}

/// Parses the query, the part after the question mark.
struct Parameters {
    known: &'static [&'static str],
    may_name: bool,
}

impl Parameters {
    fn read<'a>(&self, query: &'a str) -> Result<Vec<(&'a str, String)>, Wrong> {
        let mut read: Vec<(&str, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            if !self.known.contains(&name) && !TLS_PARAMETERS.contains(&name) {
                return Err(self.unknown(name));
            }
            if name != "node" && read.iter().any(|(other, _)| *other == name) {
                return Err(format!(
                    "the parameter {name:?} occurs twice in the store's URL"
                ));
            }
            if value.is_empty() {
                return Err(format!(
                    "the parameter {name:?} in the store's URL is empty"
                ));
            }
            read.push((name, decoded(value, name)?));
        }
        Ok(read)
    }

    fn unknown(&self, name: &str) -> Wrong {
        let mut wrong = "the store's URL has an unknown parameter".to_owned();
        let is_name = |byte: u8| byte.is_ascii_alphabetic() || b"-_".contains(&byte);
        if self.may_name && !name.is_empty() && name.bytes().all(is_name) {
            // Writing to a `String` cannot fail.
            let _ = write!(wrong, ": {name:?}");
        }
        format!("{wrong}; {ENCODE}")
    }
}

fn known(scheme: &str) -> Option<(Kind, bool)> {
    let is = |known: &&(&str, Kind, bool)| known.0.eq_ignore_ascii_case(scheme);
    SCHEMES.iter().find(is).map(|(_, kind, tls)| (*kind, *tls))
}

/// Returns true if the text looks like a scheme: a letter, then letters, digits, `+`, `-` and `.`, at most 32
/// bytes.
fn is_word(text: &str) -> bool {
    let mut bytes = text.bytes();
    bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        && text.len() <= 32
}

fn is_of_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._".contains(&byte)
}

fn number<T: std::str::FromStr>(digits: &str) -> Option<T> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

fn database(digits: &str) -> Result<u8, Wrong> {
    number(digits).ok_or_else(|| {
        format!("the database in the store's URL must be a number from 0 to 255; {ENCODE}")
    })
}

fn decoded(text: &str, what: &str) -> Result<String, Wrong> {
    let is_hex = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_hexdigit);
    let escapes = text.split('%').skip(1).map(str::as_bytes);
    if escapes
        .into_iter()
        .any(|escape| !is_hex(escape.first()) || !is_hex(escape.get(1)))
    {
        return Err(format!(
            "the {what} in the store's URL has a % without two hex digits after it; write %25 for a literal %"
        ));
    }
    let bytes = percent_decode_str(text).decode_utf8();
    let text = bytes.map_err(|_| format!("the {what} in the store's URL is not valid UTF-8"))?;
    Ok(text.into_owned())
}

#[cfg(test)]
mod tests;
