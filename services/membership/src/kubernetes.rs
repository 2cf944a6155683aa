//! Members from the Kubernetes API: a watch on the EndpointSlices of one or more Services.
//!
//! kube's watcher lists, watches from there on with bookmarks, and lists anew when the API server has
//! forgotten where it was (410 Gone). While the API is out of reach the last list stays. The account that
//! the node runs under must be allowed to list and watch `endpointslices` of `discovery.k8s.io` in the
//! Service's namespace.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client, Config};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::error::MembershipError;
use crate::follow::Heard;
use crate::slices::{SERVICE_LABEL, Slices};
use crate::source::{Port, Source};

/// What the API server says once it has forgotten a watch's place: no fault, the watcher lists anew.
const GONE: u16 = 410;

/// So long without another error, and a watch stands: longer than the watcher's pauses and a connection's time.
const QUIET: Duration = Duration::from_secs(90);

/// Which Services.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// Their namespace; the one of this node if left out.
    pub namespace: Option<String>,
    /// Their names.
    pub names: Vec<String>,
    /// Their port.
    pub port: Option<Port>,
}

impl Services {
    fn unreachable(&self, problem: String) -> MembershipError {
        let Self { namespace, names, port } = self.clone();
        let source = Source::Kubernetes { namespace, services: names, port };
        MembershipError::Unreachable { source_name: source.to_string(), problem }
    }
}

/// Tells of the Services' pods now and whenever they have changed, until nobody listens. Without a
/// `config` it is the cluster's that this node runs in, or that of the kubeconfig.
pub(crate) async fn follow(services: Services, config: Option<Config>, heard: Heard) {
    // Two are compiled in; whoever names none gets the process's.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut pauses = DefaultBackoff::default();
    let api = loop {
        match api(&services, config.clone()).await {
            Ok(api) => break api,
            Err(problem) => {
                if heard.send(Err(services.unreachable(problem))).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(pauses.next().unwrap_or_default()).await;
    };
    let labels = format!("{SERVICE_LABEL} in ({})", services.names.join(","));
    let events = watcher(api, watcher::Config::default().labels(&labels)).default_backoff();
    let mut events = std::pin::pin!(events);
    let (mut slices, mut has_warned) = (Slices::default(), false);
    let mut failed: Option<Instant> = None;
    loop {
        // A watch that is taken up again says nothing of it, unless something has changed.
        let stands_again = failed.filter(|_| slices.are_known()).map(|at| at + QUIET);
        let event = tokio::select! {
            event = events.next() => event,
            () = sleep_until(stands_again.unwrap_or_else(Instant::now)), if stands_again.is_some() => {
                failed = None;
                let list = slices.list(services.port.as_ref());
                match heard.send(list).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
        };
        let Some(event) = event else { return };
        failed = event.is_err().then(Instant::now);
        let told = match event.map(|event| slices.apply(event)) {
            Ok(true) => slices.list(services.port.as_ref()),
            Ok(false) => continue,
            Err(watcher::Error::WatchError(status)) if status.code == GONE => {
                debug!("the API server has forgotten the watch; listing anew");
                continue;
            }
            Err(error) => Err(services.unreachable(said(&error))),
        };
        if slices.nameless() && !std::mem::replace(&mut has_warned, true) {
            warn!(
                services = services.names.join(","),
                "some endpoints have neither a host name nor a pod, so they are named after their \
                 addresses: one that comes back with another address is a new I/O node"
            );
        }
        if heard.send(told).await.is_err() {
            return;
        }
    }
}

async fn api(services: &Services, config: Option<Config>) -> Result<Api<EndpointSlice>, String> {
    let config = match config {
        Some(config) => config,
        None => Config::infer().await.map_err(|error| {
            format!(
                "no Kubernetes API is known here: run in a pod with a service account, set KUBECONFIG, or name the \
                 I/O nodes by dns: or file: ({})",
                causes(&error)
            )
        })?,
    };
    let namespace = services.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| causes(&error))?;
    Ok(Api::namespaced(client, &namespace))
}

/// What went wrong, by the API server's own words where there are some.
fn said(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.message.clone(),
        error => causes(error),
    }
}

/// An error with what caused it, each said once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !said.contains(&text) {
            said = format!("{said}: {text}");
        }
        cause = error.source();
    }
    said
}

#[cfg(test)]
mod tests;
