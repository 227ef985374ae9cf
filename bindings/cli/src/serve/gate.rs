//! Who may ask for what. A page of another site, open in the same browser, may not: neither directly nor by a
//! name of its own that it makes lead here (DNS rebinding).

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};

const SITE: &str = "sec-fetch-site";
const MODE: &str = "sec-fetch-mode";
const PROTOCOL: &str = "x-forwarded-proto";
const COOKIE_NAME: &str = "leasehold-session";
/// With the token in a URL, which is asked for once and forgotten.
const QUERY: &str = "token=";

pub(super) struct Gate {
    token: Option<String>,
    session: Session,
    /// Names that lead here, except localhost.
    hosts: Vec<String>,
}

/// The session that a browser uses instead of the token. Browsers send a cookie to every port of its host, so that another
/// program at another port would get it. They also compare its path, and nobody else knows this one.
pub(super) struct Session {
    secret: String,
    /// Begins and ends with a slash.
    path: String,
}

impl Session {
    /// Takes two texts that nobody can guess.
    pub(super) fn new(secret: String, folder: &str) -> Self {
        let path = format!("/{folder}/");
        Self { secret, path }
    }
}

/// What becomes of a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    Pass,
    /// Send the browser to this path, with this cookie.
    Admit(String, String),
    Refuse(StatusCode, &'static str),
}

const FOREIGN: Verdict = Verdict::Refuse(
    StatusCode::FORBIDDEN,
    "requests of other sites are not answered",
);

impl Gate {
    pub(super) fn new(token: Option<String>, session: Session, hosts: Vec<String>) -> Self {
        Self {
            token,
            session,
            hosts,
        }
    }

    /// Returns the path under which a session's cookie counts.
    pub(super) fn path(&self) -> &str {
        &self.session.path
    }

    pub(super) fn judge(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let host = headers.get(HOST).and_then(text);
        let Some(host) = host.and_then(|host| host.parse::<Authority>().ok()) else {
            return Verdict::Refuse(StatusCode::BAD_REQUEST, "there is no host");
        };
        if !self.is_ours(host.host()) {
            return Verdict::Refuse(
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
            return Verdict::Refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, what);
        }
        self.admit(uri, headers)
    }

    /// An address cannot be made to lead here by anybody else.
    fn is_ours(&self, host: &str) -> bool {
        let address = host.trim_start_matches('[').trim_end_matches(']');
        address.parse::<std::net::IpAddr>().is_ok()
            || host.eq_ignore_ascii_case("localhost")
            || self
                .hosts
                .iter()
                .any(|ours| ours.eq_ignore_ascii_case(host))
    }

    fn admit(&self, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let Some(token) = &self.token else {
            return Verdict::Pass;
        };
        let bearer = headers.get(AUTHORIZATION).and_then(text);
        let bearer = bearer.and_then(|bearer| bearer.strip_prefix("Bearer "));
        if bearer.is_some_and(|given| same(given, token)) {
            return Verdict::Pass;
        }
        let mut cookies = headers
            .get_all(COOKIE)
            .iter()
            .filter_map(text)
            .flat_map(|cookies| cookies.split(';'));
        let session =
            cookies.find_map(|cookie| cookie.trim().strip_prefix(COOKIE_NAME)?.strip_prefix('='));
        let Session { secret, path } = &self.session;
        if uri.path().starts_with(path) && session.is_some_and(|given| same(given, secret)) {
            return Verdict::Pass;
        }
        let given = uri.query().and_then(|query| query.strip_prefix(QUERY));
        if uri.path() == "/" && given.is_some_and(|given| same(given, token)) {
            let encrypted = headers.get(PROTOCOL).is_some_and(|by| by == "https");
            let secure = if encrypted { "; Secure" } else { "" };
            let cookie =
                format!("{COOKIE_NAME}={secret}; Path={path}; HttpOnly; SameSite=Strict{secure}");
            return Verdict::Admit(path.clone(), cookie);
        }
        Verdict::Refuse(
            StatusCode::UNAUTHORIZED,
            "a token is needed: open /?token=TOKEN, or send it as Authorization: Bearer TOKEN",
        )
    }
}

/// Whether another site's page asks. To lead to the page is all that it may.
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

/// In a time that does not depend on where they differ.
fn same(given: &str, right: &str) -> bool {
    let pairs = given.bytes().zip(right.bytes());
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == right.len() && differ == 0
}

/// Of every answer. The nonce is that of this page.
pub(super) fn headers(nonce: &str) -> [(HeaderName, String); 7] {
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

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn judge(gate: &Gate, request: &str, headers: &[(&'static str, &str)]) -> Verdict {
        let (method, path) = request.split_once(' ').expect("a method and a path");
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.insert(*name, value.parse().expect("a value"));
        }
        let method = method.parse().expect("a method");
        gate.judge(&method, &path.parse().expect("a path"), &map)
    }

    fn status(verdict: &Verdict) -> u16 {
        match verdict {
            Verdict::Pass => 200,
            Verdict::Admit(..) => 303,
            Verdict::Refuse(status, _) => status.as_u16(),
        }
    }

    fn session() -> Session {
        Session::new("session".to_owned(), "folder")
    }

    fn open() -> Gate {
        Gate::new(None, session(), vec!["locks.example".to_owned()])
    }

    #[test]
    fn only_addresses_and_known_names_lead_here() {
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
            let verdict = judge(&open(), "GET /", &[("host", host)]);
            assert_eq!(status(&verdict), code, "{host}: {verdict:?}");
        }
        assert_eq!(status(&judge(&open(), "GET /", &[])), 400);
    }

    #[test]
    fn pages_of_other_sites_may_only_lead_here() {
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
            let verdict = judge(&open(), request, &[host, header]);
            assert_eq!(status(&verdict), code, "{request} {header:?}: {verdict:?}");
        }
        let framed = [host, (SITE, "cross-site"), (MODE, "no-cors")];
        assert_eq!(status(&judge(&open(), "GET /", &framed)), 403);
    }

    #[test]
    fn what_changes_something_is_json() {
        let host = ("host", "localhost");
        for (kind, code) in [
            ("application/json", 200),
            ("application/json; charset=utf-8", 200),
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
        ] {
            let verdict = judge(
                &open(),
                "POST /api/release",
                &[host, ("content-type", kind)],
            );
            assert_eq!(status(&verdict), code, "{kind}");
        }
        assert_eq!(status(&judge(&open(), "POST /api/release", &[host])), 415);
    }

    #[test]
    fn a_token_is_needed_where_there_is_one() {
        let gate = Gate::new(Some(TOKEN.to_owned()), session(), Vec::new());
        let host = ("host", "10.0.0.1");
        let good = format!("Bearer {TOKEN}");
        for (request, header, code) in [
            ("GET /", ("accept", "*/*"), 401),
            ("GET /metrics", ("authorization", &*good), 200),
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
            let verdict = judge(&gate, request, &[host, header]);
            assert_eq!(status(&verdict), code, "{request} {header:?}: {verdict:?}");
        }
        let cookie = |more: &[(&'static str, &str)]| {
            let headers = [&[host], more].concat();
            match judge(&gate, "GET /?token=0123456789abcdef", &headers) {
                Verdict::Admit(path, cookie) => (path, cookie),
                other => panic!("it is admitted: {other:?}"),
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
