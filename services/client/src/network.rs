//! The network that connections use: TCP, with or without TLS, or a simulated network.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use connections::Carrier;
use connections::tls::{ClientTls, ClientTlsConfig, TlsError};
use endpoint::{Endpoint, host_and_port_of};
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::codegen::Service;
use tonic::transport::{self, Channel, Error, Uri};
use wire::{Fault, Reason};

/// Makes connections.
pub trait Dial: Send + Sync {
    /// Connects to a node.
    ///
    /// # Errors
    /// The reason why the node cannot be reached.
    fn dial(&self, to: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Carrier>>>;
}

/// The network that connections use.
#[derive(Clone, Default)]
pub enum Network {
    /// Unencrypted TCP.
    #[default]
    Tcp,
    /// TCP with TLS.
    Tls(Arc<ClientTls>),
    /// A simulated network.
    Simulated(Arc<dyn Dial>),
}

/// The reason why the TLS settings of an endpoint are invalid.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The TLS settings contradict each other or the endpoint.
    #[error("{problem}")]
    Contradiction {
        /// The endpoint.
        endpoint: String,
        /// The problem, and how to fix it.
        problem: String,
    },
    /// The TLS files are invalid.
    #[error("TLS: {source}")]
    Tls {
        /// The endpoint.
        endpoint: String,
        /// The problem with the files.
        source: TlsError,
    },
}

impl From<NetworkError> for Fault {
    fn from(error: NetworkError) -> Self {
        let (NetworkError::Contradiction { endpoint, .. } | NetworkError::Tls { endpoint, .. }) =
            &error;
        Self::new(Reason::BadArgument, error.to_string()).with("endpoint", endpoint)
    }
}

impl Network {
    /// Returns the network for connections to `endpoint`.
    ///
    /// # Errors
    /// If the TLS files are invalid, if the settings of `tls` contradict each other, or if `tls` has settings although
    /// the endpoint's scheme is not `https`.
    pub fn of(endpoint: &Endpoint, tls: &ClientTlsConfig) -> Result<Self, NetworkError> {
        let name = || endpoint.to_string();
        let bad = |problem| Err(NetworkError::Contradiction { endpoint: name(), problem });
        if let Some((field, problem)) = tls.fault() {
            return bad(format!("TLS: `{field}` {problem}"));
        }
        match endpoint.is_tls() {
            true => match ClientTls::load(tls) {
                Ok(tls) => Ok(Self::Tls(tls)),
                Err(source) => Err(NetworkError::Tls { endpoint: name(), source }),
            },
            false if *tls == ClientTlsConfig::default() => Ok(Self::Tcp),
            false => bad(format!("{endpoint} would be used without TLS; write it with https://")),
        }
    }

    pub(crate) async fn connect(&self, to: transport::Endpoint) -> Result<Channel, Error> {
        match self {
            Self::Tcp => to.connect().await,
            Self::Tls(tls) => to.connect_with_connector(over(tls)).await,
            Self::Simulated(dial) => simulated(to).connect_with_connector(dialer(dial)).await,
        }
    }

    pub(crate) fn connect_lazy(&self, to: transport::Endpoint) -> Channel {
        match self {
            Self::Tcp => to.connect_lazy(),
            Self::Tls(tls) => to.connect_with_connector_lazy(over(tls)),
            Self::Simulated(dial) => simulated(to).connect_with_connector_lazy(dialer(dial)),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "Tcp",
            Self::Tls(_) => "Tls",
            Self::Simulated(_) => "Simulated",
        })
    }
}

/// Makes connections remember all HTTP/2 streams that they have reset. By default the `h2` crate forgets a reset stream
/// after a second of real time, and then answers late frames for it. Two runs of a simulation could then differ, only
/// because one of them took longer.
fn simulated(to: transport::Endpoint) -> transport::Endpoint {
    to.http2_reset_stream_duration(Duration::MAX)
}

fn dialer(dial: &Arc<dyn Dial>) -> Dialer {
    Dialer(Arc::clone(dial))
}

fn over(tls: &Arc<ClientTls>) -> Dialer {
    Dialer(Arc::new(DialTls(Arc::clone(tls))))
}

struct DialTls(Arc<ClientTls>);

impl Dial for DialTls {
    fn dial(&self, to: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Carrier>>> {
        let (host, port) = host_and_port_of(to);
        let (tls, host) = (Arc::clone(&self.0), host.to_owned());
        async move {
            let stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(tls.connect(stream, &host).await?) as Box<dyn Carrier>)
        }
        .boxed()
    }
}

/// Adapts [`Dial`] to the connector that tonic expects.
struct Dialer(Arc<dyn Dial>);

impl Service<Uri> for Dialer {
    type Response = TokioIo<Box<dyn Carrier>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.0.dial(&to).map(|dialled| dialled.map(TokioIo::new)).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_errors_name_the_endpoint() {
        let ca = ClientTlsConfig { ca: Some("/nowhere/ca.pem".into()), ..Default::default() };
        let cert = ClientTlsConfig { cert: Some("/nowhere/cert.pem".into()), ..Default::default() };
        for (endpoint, tls, problem) in [
            ("https://io-0:7071", &ca, "/nowhere/ca.pem can't be read"),
            ("http://io-0:7071", &ca, "write it with https://"),
            ("https://io-0:7071", &cert, "`key` is missing"),
        ] {
            let fault = Fault::from(Network::of(&endpoint.parse().unwrap(), tls).unwrap_err());
            assert_eq!(fault.reason, Reason::BadArgument);
            assert!(fault.message.contains(problem), "{fault}");
            assert_eq!(fault.metadata["endpoint"], endpoint);
        }
    }
}
