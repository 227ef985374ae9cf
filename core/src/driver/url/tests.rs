use std::time::Duration;

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Vectors {
    valid: Vec<Valid>,
    invalid: Vec<Invalid>,
}

#[derive(Deserialize, Default, PartialEq, Debug)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Valid {
    url: String,
    kind: String,
    nodes: Vec<(String, u16)>,
    tls: bool,
    username: Option<String>,
    password: Option<String>,
    database: Option<u8>,
    name: String,
    sentinel_username: Option<String>,
    sentinel_password: Option<String>,
    ca: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    server_name: Option<String>,
    shown: Option<String>,
}

#[derive(Deserialize)]
struct Invalid {
    url: String,
    says: String,
}

fn vectors() -> Vectors {
    let vectors = include_str!("../../../../tests/vectors/urls.json");
    serde_json::from_str(vectors).expect("the vectors are of this shape")
}

fn read(text: &str) -> Result<Valid, String> {
    let url = grammar::parse(text)?;
    let kind = match url.kind {
        Kind::Memory => "memory",
        Kind::Socket => "socket",
        Kind::Server => "server",
        Kind::Cluster => "cluster",
        Kind::Sentinel => "sentinel",
    };
    Ok(Valid {
        url: text.to_owned(),
        kind: kind.to_owned(),
        shown: (url.kind != Kind::Memory).then(|| url.to_string()),
        nodes: url
            .nodes
            .into_iter()
            .map(|node| (node.host, node.port))
            .collect(),
        tls: url.tls,
        username: url.username,
        password: url.password,
        database: url.database,
        name: url.name,
        sentinel_username: url.sentinel_username,
        sentinel_password: url.sentinel_password,
        ca: url.ca,
        cert: url.cert,
        key: url.key,
        server_name: url.server_name,
    })
}

/// Catches a part of a URL that is lost, or taken for another one, in one language.
#[test]
fn the_parts_of_a_url_are_taken() {
    for valid in vectors().valid {
        let read = read(&valid.url).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", valid.url));
        assert_eq!(read, valid);
    }
}

/// Catches a password in an error, and an error that leaves people to guess.
#[test]
fn bad_urls_are_config_errors_that_say_what_is_allowed_and_leak_nothing() {
    for Invalid { url, says } in vectors().invalid {
        let Err(error) = parse(&url, dial(None)) else {
            panic!("{url:?} was taken")
        };
        assert_eq!(error.kind(), ErrorKind::Config, "{url:?}");
        assert_eq!(
            error.to_string(),
            format!("{says}; it is of the form {FORMS}"),
            "{url:?}"
        );
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

#[test]
fn a_cluster_is_connected_to_as_its_url_says() {
    let Ok(Target::Cluster(target)) = parse("redis-cluster://me:p%40ss@a:7000,b", dial(None))
    else {
        panic!("it is of no cluster");
    };
    let seeds = target.seeds.iter().map(ToString::to_string);
    assert_eq!(seeds.collect::<Vec<_>>(), ["a:7000", "b:6379"]);
    assert_eq!(target.config.username.as_deref(), Some("me"));
    assert_eq!(target.config.password.as_deref(), Some("p@ss"));
    assert!(is_of_cluster("redis-cluster://a") && !is_of_cluster("redis://a"));
}

fn dial(tls: Option<&Tls>) -> Dial<'_> {
    let timeout = Duration::from_secs(1);
    Dial { tls, timeout }
}

fn target(url: &str, tls: Option<&Tls>) -> Result<RedisTarget, Error> {
    match parse(url, dial(tls))? {
        Target::Redis(target) => Ok(*target),
        Target::Memory(_) | Target::Cluster(_) => panic!("{url} is of no one server"),
    }
}

#[test]
fn a_server_is_connected_to_as_its_url_says() {
    let parsed = target("redis://me:p%40ss@example.org:7000/5", None).expect("valid");
    assert_eq!(parsed.config.username.as_deref(), Some("me"));
    assert_eq!(parsed.config.password.as_deref(), Some("p@ss"));
    assert_eq!(parsed.config.database, Some(5));
    let server = ServerConfig::new_centralized("example.org", 7000);
    assert_eq!(parsed.config.server, server);
    let socket = target("unix:///run/redis%20a.sock?db=3", None).expect("valid");
    let path = "/run/redis a.sock".into();
    assert_eq!(socket.config.server, ServerConfig::Unix { path });
    assert_eq!(socket.config.database, Some(3));
}

/// Catches a locker that was told to use TLS and sends everything in the clear.
#[test]
fn tls_that_is_set_is_not_left_out() {
    for url in ["redis://host", "unix:///socket", "memory://"] {
        let Err(error) = target(url, Some(&Tls::new())) else {
            panic!("{url} was taken");
        };
        assert!(
            error.is_config() && error.to_string().starts_with("TLS is set, and"),
            "{error}"
        );
    }
}
