//! The endpoint of a node: its address, as people write it.
//!
//! Pure: no host name is looked up, and no connection is made.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::Uri;

/// A node's address as people write it: `host:port`, `http://host:port`, or `https://host:port` with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    uri: Uri,
}

/// The error for text that is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an endpoint: {why}; write it like `http://127.0.0.1:7070`")]
pub struct EndpointError {
    text: String,
    why: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        // The text before an `@` may be a password.
        let shown =
            text.rsplit_once('@').map_or(text.to_owned(), |(_, host)| format!("***@{host}"));
        let fault = |why: &str| EndpointError { text: shown.clone(), why: why.into() };
        if text.contains('@') {
            return Err(fault("it has a user name, which nodes do not ask for"));
        }
        let spelled = match text.split_once("://") {
            None => format!("http://{text}"),
            Some(("http" | "https", _)) => text.to_owned(),
            Some((scheme, _)) => {
                return Err(fault(&format!("`{scheme}` is not spoken, only `http` and `https`")));
            }
        };
        let uri: Uri = spelled.parse().map_err(|_| fault("it is not a URI"))?;
        match uri.port_u16() {
            None if names_port(&uri) => Err(fault("its port is no number to 65535")),
            None | Some(0) => Err(fault("it names no port")),
            Some(_) if uri.path() != "/" => Err(fault("it has a path")),
            Some(_) => Ok(Self { uri }),
        }
    }
}

/// Returns whether the authority has text in the place of a port, whether or not it is a number.
fn names_port(uri: &Uri) -> bool {
    let authority = uri.authority().map_or("", |it| it.as_str());
    let (_, after) = authority.rsplit_once(['@', ']']).unwrap_or(("", authority));
    after.split_once(':').is_some_and(|(_, port)| !port.is_empty())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.uri.to_string().trim_end_matches('/'))
    }
}

impl Endpoint {
    /// Returns whether connections use TLS.
    pub fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Returns the URI. It has a scheme, a host and a port, and no path.
    pub fn uri(&self) -> &Uri {
        &self.uri
    }

    /// Returns the address. Returns `None` if the host is a name, or is unspecified (`0.0.0.0` or `::`).
    pub fn address(&self) -> Option<SocketAddr> {
        let (host, port) = self.host_and_port();
        let ip = host.parse::<IpAddr>().ok()?.to_canonical();
        (!ip.is_unspecified()).then(|| SocketAddr::new(ip, port))
    }

    /// Returns whether connections do not leave this machine: the host is a loopback address or `localhost`.
    pub fn is_loopback(&self) -> bool {
        self.address().is_some_and(|address| address.ip().is_loopback())
            || self.host_and_port().0.eq_ignore_ascii_case("localhost")
    }

    /// Returns the host (a name, or an address without brackets) and the port.
    pub fn host_and_port(&self) -> (&str, u16) {
        host_and_port_of(&self.uri)
    }
}

/// Returns the host of `uri` (a name, or an address without brackets) and its port.
pub fn host_and_port_of(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_no_name_has_an_address() {
        for (text, address) in [
            ("10.0.0.7:7071", Some("10.0.0.7:7071")),
            ("http://[::1]:1", Some("[::1]:1")),
            ("https://[::ffff:10.0.0.7]:1", Some("10.0.0.7:1")),
            ("0.0.0.0:1", None),
            ("io-0:7071", None),
        ] {
            let endpoint: Endpoint = text.parse().unwrap();
            assert_eq!(endpoint.address(), address.map(|it| it.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn a_loopback_endpoint_is_recognised() {
        for (text, is_loopback) in [
            ("127.0.0.2:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("LocalHost:1", true),
            ("0.0.0.0:1", false),
            ("10.0.0.7:1", false),
            ("localhost.example:1", false),
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().is_loopback(), is_loopback, "{text}");
        }
    }

    #[test]
    fn a_missing_scheme_is_added_and_invalid_endpoints_are_refused() {
        let shown = |text: &str| text.parse::<Endpoint>().map(|e| e.to_string());
        assert_eq!(shown("127.0.0.1:7070").unwrap(), "http://127.0.0.1:7070");
        assert_eq!(shown("http://io-0:7071/").unwrap(), "http://io-0:7071");
        assert_eq!(shown("[::1]:7070").unwrap(), "http://[::1]:7070");
        assert_eq!(shown("https://io-0:7071").unwrap(), "https://io-0:7071");
        for (text, why) in [
            ("io-0", "names no port"),
            ("io-0:0", "names no port"),
            ("[::1]", "names no port"),
            ("io-0:70000", "no number to 65535"),
            ("[::1]:70000", "no number to 65535"),
            ("0:70000", "no number to 65535"),
            ("io-0:", "names no port"),
            ("ftp://io-0:1", "only `http` and `https`"),
            ("http://io-0:1/x", "has a path"),
            ("a b:1", "not a URI"),
        ] {
            let message = shown(text).unwrap_err().to_string();
            assert!(message.contains(why) && message.contains(text), "{message}");
        }
        let message = shown("http://key:5ecret@io-0:7071").unwrap_err().to_string();
        assert!(message.contains("***@io-0:7071") && !message.contains("5ecret"), "{message}");
    }
}
