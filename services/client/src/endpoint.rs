//! The endpoint of a node.

use std::fmt;
use std::str::FromStr;

use connections::tls::NoTls;
use tonic::transport::Uri;
use tonic::{Code, Status};
use wire::{Fault, Reason};

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

/// Returns whether the authority has text in the place of a port, be it a number or not.
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

    /// Returns the host (a name or an address) and the port.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        host_and_port_of(&self.uri)
    }

    /// Returns the endpoint for tonic, without windows and timeouts. Its scheme is always `http`: [`Network`] adds TLS.
    ///
    /// [`Network`]: crate::Network
    pub(crate) fn transport(&self) -> tonic::transport::Endpoint {
        let mut parts = self.uri.clone().into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        // A valid URI stays valid with another scheme.
        let uri = Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone());
        tonic::transport::Endpoint::from(uri).tcp_nodelay(true)
    }
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Self {
        Fault::new(Reason::BadArgument, error.to_string()).with("endpoint", &error.text)
    }
}

/// Returns the host of `uri` (a name, or an address without brackets) and its port.
pub(crate) fn host_and_port_of(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or_default())
}

/// Iterates over an error and its causes.
pub(crate) fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}

/// Returns the message of a transport error's innermost cause, which is the informative one.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns whether connecting with TLS failed because the node does not speak TLS.
pub(crate) fn lacks_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        inner.is_some_and(|inner| inner.is::<NoTls>())
    })
}

/// Describes why a call got no answer from a node. Never empty.
pub(crate) fn why(status: &Status) -> String {
    let cause = std::error::Error::source(status);
    match (status.code(), cause) {
        // The connection could not be made, or was lost.
        (Code::Unavailable | Code::Cancelled, Some(cause)) => root_cause(cause),
        (Code::Unimplemented, _) => "it has no such service".into(),
        (_, Some(cause)) => format!("it speaks no gRPC, or broke off: {}", root_cause(cause)),
        (code, None) if status.message().is_empty() => code.description().into(),
        (_, None) => status.message().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
