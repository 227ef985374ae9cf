//! Decides which requests are allowed. A page of another site that is open in the same browser may send none, neither
//! directly nor by a host name of its own that it makes lead here (DNS rebinding).

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

use crate::options::Error;

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const PROTOCOL: &str = "x-forwarded-proto";
const COOKIE_NAME: &str = "leasehold-session";
/// The query of the one URL with a token in it. The browser is redirected, and so forgets it.
const QUERY: &str = "token=";

/// The rules by which requests are allowed.
pub(crate) struct Access {
    pub(crate) token: Option<String>,
    pub(crate) session: Session,
    /// Host names of this page, except localhost.
    pub(crate) hosts: Vec<String>,
}

/// The session that a browser uses instead of the token. Browsers send a cookie to every port of its host, so a program at another
/// port would get it. But they also compare the path, and nobody else knows this one.
pub(crate) struct Session {
    secret: String,
    /// The path for which the cookie counts. It begins and ends with a slash.
    pub(crate) path: String,
}

impl Session {
    /// Makes a session of two texts that nobody can guess.
    pub(crate) fn new(secret: String, folder: &str) -> Self {
        let path = format!("/{folder}/");
        Self { secret, path }
    }
}

/// The decision on a request.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    Allow,
    /// The browser is sent to this path, with this cookie.
    Login {
        path: String,
        cookie: String,
    },
    Refuse(StatusCode, &'static str),
}

const FOREIGN: Decision = Decision::Refuse(
    StatusCode::FORBIDDEN,
    "requests of other sites are not answered",
);

impl Access {
    pub(crate) fn decide(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Decision {
        let host = headers.get(HOST).and_then(text);
        let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
            return Decision::Refuse(StatusCode::BAD_REQUEST, "there is no host");
        };
        if !self.is_own_name(host.host()) {
            return Decision::Refuse(
                StatusCode::MISDIRECTED_REQUEST,
                "that name is not known here: give it by --host, or use localhost or an address",
            );
        }
        let is_page = uri.path() == "/" || uri.path() == self.session.path;
        if is_foreign(method == Method::GET && is_page, headers, &host) {
            return FOREIGN;
        }
        if method == Method::POST && !is_json(headers) {
            let what = "only JSON is taken";
            return Decision::Refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, what);
        }
        self.authenticate(uri, headers)
    }

    /// Checks a host name. Addresses are safe, because nobody else can make one lead here.
    fn is_own_name(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<std::net::IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    fn authenticate(&self, uri: &Uri, headers: &HeaderMap) -> Decision {
        let Some(token) = &self.token else {
            return Decision::Allow;
        };
        let bearer = headers.get(AUTHORIZATION).and_then(text);
        // The name of the scheme has no case: RFC 9110.
        let bearer = bearer.and_then(|bearer| bearer.split_once(' '));
        let bearer = bearer.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("Bearer"));
        if bearer.is_some_and(|(_, given)| is_same(given, token)) {
            return Decision::Allow;
        }
        let mut cookies = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(text)
            .flat_map(|cookies| cookies.split(';'));
        let session =
            cookies.find_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
        let Session { secret, path } = &self.session;
        if uri.path().starts_with(path) && session.is_some_and(|given| is_same(given, secret)) {
            return Decision::Allow;
        }
        let given = uri.query().and_then(|query| query.strip_prefix(QUERY));
        if uri.path() == "/" && given.is_some_and(|given| is_same(given, token)) {
            let encrypted = headers.get(PROTOCOL).is_some_and(|by| by == "https");
            let secure = if encrypted { "; Secure" } else { "" };
            let cookie =
                format!("{COOKIE_NAME}={secret}; Path={path}; HttpOnly; SameSite=Strict{secure}");
            let path = path.clone();
            return Decision::Login { path, cookie };
        }
        Decision::Refuse(
            StatusCode::UNAUTHORIZED,
            "a token is needed: open /?token=TOKEN, or send it as Authorization: Bearer TOKEN",
        )
    }
}

/// Returns `true` for a request by a page of another site, which may only link to this one.
fn is_foreign(gets_page: bool, headers: &HeaderMap, host: &Authority) -> bool {
    let leads_here = gets_page && headers.get(MODE).is_none_or(|mode| mode == "navigate");
    if let Some(origin) = headers.get(ORIGIN) {
        let origin = text(origin).and_then(|origin| {
            let authority = origin
                .strip_prefix("http://")
                .or_else(|| origin.strip_prefix("https://"))?;
            authority.parse::<Authority>().ok()
        });
        if origin.as_ref() != Some(host) {
            return true;
        }
    }
    let own = |site: &HeaderValue| site == "same-origin" || site == "none";
    !leads_here && headers.get(SITE).is_some_and(|site| !own(site))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(text).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn text(value: &HeaderValue) -> Option<&str> {
    value.to_str().ok()
}

/// Compares two secrets, in a time that does not depend on where they differ.
fn is_same(given: &str, right: &str) -> bool {
    let pairs = given.bytes().zip(right.bytes());
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == right.len() && differ == 0
}

/// Returns the headers of each response. Only scripts and styles with the nonce run.
pub(crate) fn headers(nonce: &str) -> [(HeaderName, String); 7] {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    [
        ("content-security-policy", policy),
        ("x-content-type-options", "nosniff".to_owned()),
        ("x-frame-options", "DENY".to_owned()),
        ("referrer-policy", "no-referrer".to_owned()),
        ("cross-origin-resource-policy", "same-origin".to_owned()),
        ("cross-origin-opener-policy", "same-origin".to_owned()),
        ("cache-control", "no-store".to_owned()),
    ]
    .map(|(name, value)| (HeaderName::from_static(name), value))
}

/// Makes an id of 128 bits that nobody can guess.
pub(crate) fn random_id() -> Result<String, Error> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits).map_err(|error| Error::Random(error.to_string()))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn decide(access: &Access, request: &str, headers: &[(&'static str, &str)]) -> Decision {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        access.decide(&method, &path.parse().expect("a path"), &map)
    }

    fn status(decision: &Decision) -> u16 {
        match decision {
            Decision::Allow => 200,
            Decision::Login { .. } => 303,
            Decision::Refuse(status, _) => status.as_u16(),
        }
    }

    fn with(token: Option<String>, hosts: Vec<String>) -> Access {
        Access {
            token,
            session: Session::new("session".to_owned(), "folder"),
            hosts,
        }
    }

    fn open() -> Access {
        with(None, vec!["locks.example".to_owned()])
    }

    #[test]
    fn only_addresses_and_known_host_names_are_allowed() {
        for (host, code) in [
            ("127.0.0.1:8420", 200),
            ("localhost", 200),
            ("LOCALHOST:1", 200),
            ("[::1]:8420", 200),
            ("10.1.2.3:8420", 200),
            ("Locks.Example", 200),
            ("evil.example:8420", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("127.0.0.1@evil.example", 421),
            ("", 400),
        ] {
            let decision = decide(&open(), "GET /", &[("host", host)]);
            assert_eq!(status(&decision), code, "{host}: {decision:?}");
        }
        assert_eq!(status(&decide(&open(), "GET /", &[])), 400);
    }

    #[test]
    fn pages_of_other_sites_may_only_link_here() {
        let host = ("host", "localhost:8420");
        for (request, header, code) in [
            ("GET /api/locks", ("origin", "http://localhost:8420"), 200),
            ("GET /api/locks", ("origin", "https://localhost:8420"), 200),
            ("GET /api/locks", ("origin", "http://localhost:1"), 403),
            ("GET /api/locks", ("origin", "http://evil.example"), 403),
            ("GET /api/locks", ("origin", "null"), 403),
            ("GET /events", (SITE, "cross-site"), 403),
            ("GET /events", (SITE, "same-site"), 403),
            ("GET /events", (SITE, "same-origin"), 200),
            ("GET /", (SITE, "cross-site"), 200),
            ("GET /folder/", (SITE, "cross-site"), 200),
            ("GET /folder/events", (SITE, "same-site"), 403),
        ] {
            let decision = decide(&open(), request, &[host, header]);
            assert_eq!(
                status(&decision),
                code,
                "{request} {header:?}: {decision:?}"
            );
        }
        let framed = [host, (SITE, "cross-site"), (MODE, "no-cors")];
        assert_eq!(status(&decide(&open(), "GET /", &framed)), 403);
    }

    #[test]
    fn requests_that_change_something_are_json() {
        let host = ("host", "localhost");
        for (kind, code) in [
            ("application/json", 200),
            ("application/json; charset=utf-8", 200),
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
        ] {
            let decision = decide(
                &open(),
                "POST /api/release",
                &[host, ("content-type", kind)],
            );
            assert_eq!(status(&decision), code, "{kind}");
        }
        assert_eq!(status(&decide(&open(), "POST /api/release", &[host])), 415);
    }

    #[test]
    fn each_request_needs_the_token() {
        let access = with(Some(TOKEN.to_owned()), Vec::new());
        let host = ("host", "10.0.0.1");
        let good = format!("Bearer {TOKEN}");
        for (request, header, code) in [
            ("GET /", ("accept", "*/*"), 401),
            ("GET /metrics", ("authorization", &*good), 200),
            (
                "GET /metrics",
                ("authorization", "bearer 0123456789abcdef"),
                200,
            ),
            (
                "GET /metrics",
                ("authorization", "Basic 0123456789abcdef"),
                401,
            ),
            (
                "GET /metrics",
                ("authorization", "Bearer 0123456789abcdeg"),
                401,
            ),
            ("GET /metrics", ("authorization", "Bearer "), 401),
            (
                "GET /folder/",
                ("cookie", "a=b; leasehold-session=session"),
                200,
            ),
            ("GET /folder/", ("cookie", "leasehold-session=sessiom"), 401),
            ("GET /folder/", ("cookie", "leasehold-session="), 401),
            ("GET /", ("cookie", "leasehold-session=session"), 401),
            ("GET /folder", ("cookie", "leasehold-session=session"), 401),
            ("GET /?token=0123456789abcdef", ("accept", "*/*"), 303),
            ("GET /?token=0123456789abcde", ("accept", "*/*"), 401),
            (
                "GET /metrics?token=0123456789abcdef",
                ("accept", "*/*"),
                401,
            ),
        ] {
            let decision = decide(&access, request, &[host, header]);
            assert_eq!(
                status(&decision),
                code,
                "{request} {header:?}: {decision:?}"
            );
        }
        let cookie = |more: &[(&'static str, &str)]| {
            let headers = [&[host], more].concat();
            match decide(&access, "GET /?token=0123456789abcdef", &headers) {
                Decision::Login { path, cookie } => (path, cookie),
                other => panic!("it logs in: {other:?}"),
            }
        };
        let (path, plain) = cookie(&[]);
        assert_eq!(path, "/folder/");
        let expected = "leasehold-session=session; Path=/folder/; HttpOnly; SameSite=Strict";
        assert_eq!(plain, expected);
        let (_, encrypted) = cookie(&[(PROTOCOL, "https")]);
        assert_eq!(encrypted, format!("{expected}; Secure"));
    }
}
