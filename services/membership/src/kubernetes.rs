//! Reads members from the Kubernetes API with a watch on the EndpointSlices of one or more Services.
//!
//! kube's watcher lists the slices, then watches them from the version of that list on, with bookmarks. It lists them
//! again when the API server no longer has the version that the watch has reached (410 Gone). While the API is out of
//! reach, the last list stays in use. The node's service account needs permission to list and watch `endpointslices`
//! of `discovery.k8s.io` in the Services' namespace.

use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client, Config};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use crate::error::MembershipError;
use crate::slices::{SERVICE_LABEL, Slices};
use crate::source::{ListSender, Port, Source};

/// The status code with which the API server says that it no longer has a watch's version. This is no error, because
/// the watcher lists again.
const GONE: u16 = 410;

/// The time without another error after which a watch that failed counts as restored. It is longer than the watcher's
/// longest back-off and the time that a connection attempt takes to fail.
const QUIET_TIME: Duration = Duration::from_secs(90);

/// The Services to watch.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    /// The Services' namespace. `None` is the namespace of this node.
    pub namespace: Option<String>,
    /// The Services' names.
    pub names: Vec<String>,
    /// The Services' port. `None` if each Service has only one.
    pub port: Option<Port>,
}

impl Services {
    fn unreachable(&self, problem: String) -> MembershipError {
        let Self { namespace, names, port } = self.clone();
        let source = Source::Kubernetes { namespace, services: names, port };
        MembershipError::Unreachable { source_name: source.to_string(), problem }
    }
}

/// Sends the list made from the Services' pods, now and after each change, until the receiver is dropped. Without a
/// `config`, uses the kubeconfig or, if there is none, the cluster that this node runs in.
pub(crate) async fn follow(services: Services, config: Option<Config>, lists: ListSender) {
    // Two crypto providers are compiled in, so rustls can't pick one: kube's client needs a process default.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let mut backoff = DefaultBackoff::default();
    let api = loop {
        match api(&services, config.clone()).await {
            Ok(api) => break api,
            Err(problem) => {
                if lists.send(Err(services.unreachable(problem))).await.is_err() {
                    return;
                }
            }
        }
        tokio::time::sleep(backoff.next().unwrap_or_default()).await;
    };
    let labels = format!("{SERVICE_LABEL} in ({})", services.names.join(","));
    let events = watcher(api, watcher::Config::default().labels(&labels)).default_backoff();
    let mut events = std::pin::pin!(events);
    let (mut slices, mut has_warned) = (Slices::default(), false);
    let mut failed: Option<Instant> = None;
    loop {
        // A restored watch sends no event until a slice changes, so the error would stay in the report. Send the
        // list again after a quiet time, which clears the error.
        let restored = failed.filter(|_| slices.are_known()).map(|at| at + QUIET_TIME);
        let event = tokio::select! {
            event = events.next() => event,
            () = sleep_until(restored.unwrap_or_else(Instant::now)), if restored.is_some() => {
                failed = None;
                let list = slices.list(services.port.as_ref());
                match lists.send(list).await {
                    Ok(()) => continue,
                    Err(_) => return,
                }
            }
        };
        let Some(event) = event else { return };
        failed = event.is_err().then(Instant::now);
        let list = match event.map(|event| slices.apply(event)) {
            Ok(true) => slices.list(services.port.as_ref()),
            Ok(false) => continue,
            Err(watcher::Error::WatchError(status)) if status.code == GONE => {
                debug!("the API server no longer has the watch's version; listing again");
                continue;
            }
            Err(error) => Err(services.unreachable(describe(&error))),
        };
        if slices.has_unnamed_pod() && !std::mem::replace(&mut has_warned, true) {
            warn!(
                services = services.names.join(","),
                "some endpoints have neither a host name nor a pod name, so they are named after their \
                 addresses. An I/O node that restarts with another address counts as a new node"
            );
        }
        if lists.send(list).await.is_err() {
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
                error_chain(&error)
            )
        })?,
    };
    let namespace = services.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let client = Client::try_from(config).map_err(|error| error_chain(&error))?;
    Ok(Api::namespaced(client, &namespace))
}

/// Returns the API server's own message if the error has one, or else the error and its causes.
fn describe(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.message.clone(),
        error => error_chain(error),
    }
}

/// Joins an error's text with those of its causes, leaving out repeated texts.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut chain = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if !chain.contains(&text) {
            chain = format!("{chain}: {text}");
        }
        cause = error.source();
    }
    chain
}

#[cfg(test)]
mod tests;
