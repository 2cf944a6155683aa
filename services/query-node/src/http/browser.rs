//! Requests of web pages. Pages whose origins `browser_origins` names get answers, with the headers that browsers
//! expect (CORS). All other pages are refused.
//!
//! Browsers say which page a request comes from. A page that somebody lures a user to must not read the tables that the
//! user's machine can reach. If its name leads to the node's own address (DNS rebinding), a browser takes the node for
//! the page's own server. It then sends no `Origin` with a GET, but it sends the page's name as the host.

use axum::body::Body;
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, HOST,
    ORIGIN, VARY,
};
use axum::http::request::Parts;
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

/// Returns the origin of the page that a request comes from, if the answer must name it; `None` for a request of a program,
/// or of a page that has the node's own origin.
///
/// # Errors
/// [`HttpError::WebPage`] if the page is not one of `allowed`.
pub fn origin_of(request: &Parts, allowed: &[WebOrigin]) -> Result<Option<HeaderValue>, HttpError> {
    let headers = &request.headers;
    if let Some(origin) = headers.get(ORIGIN) {
        let is_allowed = allowed.iter().any(|it| it.as_str().as_bytes() == origin.as_bytes());
        return if is_allowed { Ok(Some(origin.clone())) } else { Err(HttpError::WebPage) };
    }
    let Some(site) = headers.get(FETCH_SITE) else { return Ok(None) };
    let authority = request.uri.authority().map(|it| it.as_str().as_bytes());
    let host = authority.or_else(|| headers.get(HOST).map(HeaderValue::as_bytes));
    let is_own = allowed.iter().any(|it| Some(it.host().as_bytes()) == host);
    if site.as_bytes() == b"same-origin" && is_own { Ok(None) } else { Err(HttpError::WebPage) }
}

/// Answers the question of a browser whether a page may send a request.
pub fn preflight(headers: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    answer.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
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

    /// For a request with these headers, returns the origin that the answer names, if any, or `Err` if the request is
    /// refused.
    fn origin(uri: &str, headers: &[(&str, &str)]) -> Result<Option<String>, ()> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let allowed = [WebOrigin::try_from("https://app.example.com".to_owned()).unwrap()];
        let origin = origin_of(&request.body(()).unwrap().into_parts().0, &allowed);
        let text = |origin: HeaderValue| origin.to_str().unwrap().to_owned();
        origin.map(|origin| origin.map(text)).map_err(drop)
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
}
