//! Where a node listens.

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

/// Text that is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an endpoint: {why}; write it like `http://127.0.0.1:7070`")]
pub struct EndpointError {
    text: String,
    why: String,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        // What is before an `@` may be a password.
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
        let uri: Uri = spelled.parse().map_err(|_| fault("it is no URI"))?;
        match uri.port_u16() {
            None if names_port(&uri) => Err(fault("its port is no number to 65535")),
            None | Some(0) => Err(fault("it names no port")),
            Some(_) if uri.path() != "/" => Err(fault("it has a path")),
            Some(_) => Ok(Self { uri }),
        }
    }
}

/// Whether there is anything where a port is, a number or not.
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
    /// Whether it is spoken to with TLS.
    pub fn is_tls(&self) -> bool {
        self.uri.scheme_str() == Some("https")
    }

    /// Its host, a name or an address, and its port.
    pub(crate) fn host_and_port(&self) -> (&str, u16) {
        host_and_port_of(&self.uri)
    }

    /// What tonic connects with, before windows and timeouts are set. TLS is the network's.
    pub(crate) fn transport(&self) -> tonic::transport::Endpoint {
        let mut parts = self.uri.clone().into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        // Of a URI only its scheme was changed.
        let uri = Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone());
        tonic::transport::Endpoint::from(uri).tcp_nodelay(true)
    }
}

impl From<EndpointError> for Fault {
    fn from(error: EndpointError) -> Self {
        Fault::new(Reason::BadArgument, error.to_string()).with("endpoint", &error.text)
    }
}

/// The host, a name or an address without brackets, and the port that `uri` names.
pub(crate) fn host_and_port_of(uri: &Uri) -> (&str, u16) {
    let host = uri.host().unwrap_or_default();
    (host.trim_matches(['[', ']']), uri.port_u16().unwrap_or_default())
}

/// An error, and what it comes of, one after the other.
pub(crate) fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |cause| cause.source())
}

/// The innermost cause of a transport error, which is the one that says something.
pub(crate) fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Whether it is for want of TLS that an endpoint wasn't reached which is said to speak it.
pub(crate) fn lacks_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    causes(error).any(|cause| {
        let within = cause.downcast_ref::<std::io::Error>().and_then(|error| error.get_ref());
        within.is_some_and(|within| within.is::<NoTls>())
    })
}

/// Why a call has no answer of a node's own, in words that are never empty.
pub(crate) fn why(status: &Status) -> String {
    let cause = std::error::Error::source(status);
    match (status.code(), cause) {
        // The connection could not be made, or is gone.
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
    fn hosts_get_their_scheme_and_nonsense_is_refused() {
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
            ("a b:1", "no URI"),
        ] {
            let message = shown(text).unwrap_err().to_string();
            assert!(message.contains(why) && message.contains(text), "{message}");
        }
        let message = shown("http://key:5ecret@io-0:7071").unwrap_err().to_string();
        assert!(message.contains("***@io-0:7071") && !message.contains("5ecret"), "{message}");
    }
}
