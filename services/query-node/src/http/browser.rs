//! Requests of web pages. Pages whose origins `browser_origins` names get answers, with the headers that browsers
//! expect (CORS). All other pages are refused.
//!
//! A page that somebody lures a user to must not read the tables that the user's machine can reach. Browsers say with
//! `Origin` or `Sec-Fetch-Site` which page a request comes from, with one exception. If the page's name leads to the
//! node's own address (DNS rebinding), a browser takes the node for the page's own server, and a GET over unencrypted
//! HTTP then has neither header. But its `Host` is the page's name, which is a name in the public DNS. So a request
//! without these headers is refused if its host is a public name that `browser_origins` does not have, unless its
//! caller knows something that such a page can't know:
//!
//! - The access policy checks the caller's key or token. Without a policy a key proves nothing: a page may send any.
//! - The node has TLS. A browser then refuses it under a name that its certificate does not have.

use std::net::Ipv4Addr;

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST,
    ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::error::HttpError;
use crate::config::WebOrigin;

/// The header by which a browser says how a request's page is related to the node.
const FETCH_SITE: &str = "sec-fetch-site";

/// The headers of answers that pages may read, besides those that browsers always let them read.
const EXPOSED: &str =
    "phalanx-version, x-lancedb-version, x-request-id, retry-after, content-range, accept-ranges";

/// The time in seconds for which a browser need not ask again what a page may send.
const PREFLIGHT_AGE: &str = "600";

/// The last labels of names that are not in the public DNS, so no page comes from a server with such a name. They are
/// reserved (RFC 6761, RFC 6762, `internal` by ICANN), except for `svc`, the end of the short names of Kubernetes
/// Services, which is not a top-level domain. Names without a dot are not in the public DNS either.
const PRIVATE_DOMAINS: [&str; 4] = ["localhost", "local", "internal", "svc"];

/// The rules by which a node accepts requests that may come from a web page.
#[derive(Clone, Copy)]
pub struct PageRules<'a> {
    /// The origins of the pages that may call the node.
    pub allowed: &'a [WebOrigin],
    /// Whether an access policy checks the key or token of a request that has one.
    pub has_policy: bool,
    /// Whether the node's connections are encrypted.
    pub has_tls: bool,
}

impl PageRules<'_> {
    /// Returns the origin of the page that a request comes from, if the answer must name it; `None` for a request of a
    /// program, or of a page that has the node's own origin.
    ///
    /// # Errors
    /// [`HttpError::WebPage`] if the page is not one of those that are allowed, and [`HttpError::Host`] if the request may
    /// come from a page whose name leads to the node.
    pub fn origin_of(&self, request: &Parts) -> Result<Option<HeaderValue>, HttpError> {
        let headers = &request.headers;
        if headers.contains_key(ORIGIN) {
            return self.named_origin(headers).map(Some).ok_or(HttpError::WebPage);
        }
        let authority = request.uri.authority().map(|it| it.as_str().as_bytes());
        let host = authority.or_else(|| headers.get(HOST).map(HeaderValue::as_bytes));
        let is_own = |host: &[u8]| {
            self.allowed.iter().any(|it| it.host().as_bytes().eq_ignore_ascii_case(host))
        };
        if let Some(site) = headers.get(FETCH_SITE) {
            let is_own = site.as_bytes() == b"same-origin" && host.is_some_and(is_own);
            return if is_own { Ok(None) } else { Err(HttpError::WebPage) };
        }
        match host {
            Some(host) if !self.proves_itself(headers) && !is_private(host) && !is_own(host) => {
                Err(HttpError::Host(String::from_utf8_lossy(host).into_owned()))
            }
            // Browsers always send a host.
            _ => Ok(None),
        }
    }

    /// Returns the origin that a request names, if its page may call the node.
    pub fn named_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let is_allowed = |it: &WebOrigin| it.as_str().as_bytes() == origin.as_bytes();
        self.allowed.iter().any(is_allowed).then(|| origin.clone())
    }

    /// Returns whether a request reaches its table only if its caller knows a secret, or if the node's certificate has
    /// the name that the request is sent to.
    fn proves_itself(&self, headers: &HeaderMap) -> bool {
        let has_credential =
            ["x-api-key", "authorization"].iter().any(|it| headers.contains_key(*it));
        self.has_tls || (self.has_policy && has_credential)
    }
}

/// Returns whether a host, maybe with a port, is an address or a name that is not in the public DNS.
fn is_private(host: &[u8]) -> bool {
    let Ok(authority) = Authority::try_from(host) else { return false };
    let name = authority.host();
    let name = name.strip_suffix('.').unwrap_or(name);
    match name.rsplit_once('.') {
        None => true,
        Some((_, last)) => {
            name.parse::<Ipv4Addr>().is_ok()
                || PRIVATE_DOMAINS.iter().any(|it| it.eq_ignore_ascii_case(last))
        }
    }
}

/// Answers the question of a browser whether a page may send a request.
pub fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD, POST"));
    // Every header may be sent: one that no call knows is ignored.
    if let Some(asked) = headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    answer.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(PREFLIGHT_AGE));
    response
}

/// Lets the page of `origin` read an answer.
pub fn share(response: &mut Response<Body>, origin: HeaderValue) {
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.insert(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    const OPEN: PageRules<'_> = PageRules { allowed: &[], has_policy: false, has_tls: false };

    /// For a request with these headers, returns the origin that the answer names, if any, or `Err` if the request is
    /// refused.
    fn origin(uri: &str, headers: &[(&str, &str)]) -> Result<Option<String>, ()> {
        let allowed = [WebOrigin::try_from("https://app.example.com".to_owned()).unwrap()];
        let origin = origin_by(PageRules { allowed: &allowed, ..OPEN }, uri, headers);
        origin.map_err(drop)
    }

    fn origin_by(
        rules: PageRules<'_>,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Result<Option<String>, HttpError> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let origin = rules.origin_of(&request.body(()).unwrap().into_parts().0);
        let text = |origin: HeaderValue| origin.to_str().unwrap().to_owned();
        origin.map(|origin| origin.map(text))
    }

    #[test]
    fn only_allowed_pages_are_answered() {
        let app = "https://app.example.com";
        assert_eq!(origin("/v1/table", &[("host", "node:7070")]), Ok(None));
        assert_eq!(origin("/v1/table", &[("origin", app)]), Ok(Some(app.to_owned())));
        let cross = [("origin", app), ("sec-fetch-site", "cross-site")];
        assert_eq!(origin("/v1/table", &cross), Ok(Some(app.to_owned())));
        for other in ["null", "http://app.example.com", "https://app.example.com.evil.com", ""] {
            assert_eq!(origin("/v1/table", &[("origin", other)]), Err(()), "{other}");
        }
    }

    #[test]
    fn a_page_of_the_nodes_own_origin_needs_an_allowed_host() {
        let own = ("sec-fetch-site", "same-origin");
        assert_eq!(origin("/v1/table", &[own, ("host", "app.example.com")]), Ok(None));
        assert_eq!(origin("https://app.example.com/v1/table", &[own]), Ok(None));
        assert_eq!(origin("/v1/table", &[own, ("host", "rebound.evil.com")]), Err(()));
        assert_eq!(origin("/v1/table", &[own]), Err(()));
        let none = ("sec-fetch-site", "none");
        assert_eq!(origin("/v1/table", &[none, ("host", "app.example.com")]), Err(()));
    }

    #[test]
    fn a_page_whose_name_leads_to_the_node_is_refused() {
        let ask = |rules, host| origin_by(rules, "/v1/table", &[("host", host)]);
        for host in [
            "127.0.0.1:7070",
            "10.1.2.3",
            "[::1]:7070",
            "[2001:db8::1]",
            "localhost:7070",
            "LOCALHOST.",
            "node",
            "bireme-query:7070",
            "bireme-query.default.svc",
            "bireme-query.default.svc.cluster.local.:7070",
            "ip-10-0-0-1.ec2.internal",
            "app.localhost",
        ] {
            assert!(matches!(ask(OPEN, host), Ok(None)), "{host}");
        }
        for host in [
            "evil.com",
            "evil.com:7070",
            "evil.com.",
            "127.0.0.1.evil.com",
            "svc.evil.com",
            "evilinternal.com",
            "1.2.3",
            "evil.com:7070:1",
            "a b",
        ] {
            let refused = ask(OPEN, host);
            assert!(matches!(&refused, Err(HttpError::Host(it)) if it == host), "{refused:?}");
        }
        assert!(matches!(
            origin_by(OPEN, "http://evil.com/v1/table", &[]),
            Err(HttpError::Host(_))
        ));
    }

    #[test]
    fn a_public_name_is_accepted_if_the_caller_proves_itself() {
        let host = ("host", "bireme.example.com:7070");
        let is_answered =
            |rules, headers: &[_]| matches!(origin_by(rules, "/v1/table", headers), Ok(None));
        let key = [host, ("x-api-key", "any")];
        let token = [host, ("authorization", "Bearer any")];
        // Without a policy any key is accepted, so a page can send one.
        assert!(!is_answered(OPEN, &key) && !is_answered(OPEN, &token));
        let policy = PageRules { has_policy: true, ..OPEN };
        assert!(is_answered(policy, &key) && is_answered(policy, &token));
        // The policy may have a grant for anyone.
        assert!(!is_answered(policy, &[host]));
        assert!(is_answered(PageRules { has_tls: true, ..OPEN }, &[host]));
        let named = [WebOrigin::try_from("http://bireme.example.com:7070".to_owned()).unwrap()];
        let named = PageRules { allowed: &named, ..OPEN };
        assert!(is_answered(named, &[host]));
        assert!(is_answered(named, &[("host", "BIREME.example.com:7070")]));
        assert!(!is_answered(named, &[("host", "bireme.example.com")]));
    }
}
