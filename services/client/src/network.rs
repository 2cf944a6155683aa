//! What connections are made over: TCP, or a network that a simulation makes up.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};

use connections::Carrier;
use futures::FutureExt;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Makes connections.
pub trait Dial: Send + Sync {
    /// Connects to a node.
    ///
    /// # Errors
    /// Why it can't be reached.
    fn dial(&self, to: &Uri) -> BoxFuture<'static, io::Result<Box<dyn Carrier>>>;
}

/// See the module.
#[derive(Clone, Default)]
pub enum Network {
    /// The machine's own.
    #[default]
    Tcp,
    /// One that is made up.
    Simulated(Arc<dyn Dial>),
}

impl Network {
    pub(crate) async fn connect(&self, to: Endpoint) -> Result<Channel, Error> {
        match self {
            Self::Tcp => to.connect().await,
            Self::Simulated(dial) => to.connect_with_connector(Dialer(Arc::clone(dial))).await,
        }
    }

    pub(crate) fn connect_lazy(&self, to: Endpoint) -> Channel {
        match self {
            Self::Tcp => to.connect_lazy(),
            Self::Simulated(dial) => to.connect_with_connector_lazy(Dialer(Arc::clone(dial))),
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "Tcp",
            Self::Simulated(_) => "Simulated",
        })
    }
}

/// As tonic calls it.
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
