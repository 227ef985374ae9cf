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
    let vectors = crate::vectors("urls.json");
    serde_json::from_str(&vectors).expect("the vectors are of this shape")
}

fn valid(text: &str) -> Result<Valid, Error> {
    let url = parse(text)?;
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

/// Catches a part of a URL that one language loses or mistakes for another part.
#[test]
fn the_parts_of_a_url_are_taken() {
    for expected in vectors().valid {
        let read =
            valid(&expected.url).unwrap_or_else(|wrong| panic!("{:?}: {wrong}", expected.url));
        assert_eq!(read, expected);
    }
}

/// Catches a password in an error, and an error that does not say which forms are allowed.
#[test]
fn bad_urls_are_config_errors_that_say_what_is_allowed_and_leak_nothing() {
    for Invalid { url, says } in vectors().invalid {
        let Err(error) = parse(&url) else {
            panic!("{url:?} was taken")
        };
        assert_eq!(error.kind(), ErrorKind::Config, "{url:?}");
        assert_eq!(
            error.to_string(),
            format!("{says}; a store's URL has the form {FORMS}"),
            "{url:?}"
        );
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}
