//! Merges the EndpointSlices of one or more Services into one list of members. Pure.
//!
//! A Service's endpoints are split into slices of up to 100 endpoints, in no particular order. All addresses of a
//! slice are of one family, IPv4 or IPv6. While the controller moves an endpoint, two slices may contain it.
//!
//! A member is named after the endpoint's host name, which pods of a StatefulSet have and keep when they restart.
//! Without one it is named after its pod, and without a pod after its address. A member's weight is a label of its
//! Service. Kubernetes copies a Service's labels to its slices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::{Endpoint as Pod, EndpointPort, EndpointSlice};
use kube::runtime::watcher::Event;

use crate::error::{MembershipError, Result};
use crate::list::{Entry, MemberList, Presence};
use crate::source::Port;

/// The label of a slice that holds its Service's name.
pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The label of a Service that holds the weight of each of its nodes. Without the label the weight is 1.
const WEIGHT_LABEL: &str = "bireme.io/weight";

/// The values of a port's `appProtocol` that are accepted: the usual names for gRPC without TLS.
const PROTOCOLS: [&str; 6] = ["grpc", "h2c", "kubernetes.io/h2c", "http2", "http", "tcp"];

/// The current slices of the Services, updated by a watch's events.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    known: BTreeMap<String, EndpointSlice>,
    /// The slices received so far of a listing that is still incomplete.
    listed: BTreeMap<String, EndpointSlice>,
    are_known: bool,
}

impl Slices {
    /// Applies an event. Returns whether the list may have changed. It does not change in the middle of a listing.
    pub fn apply(&mut self, event: Event<EndpointSlice>) -> bool {
        let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => {
                self.listed.clear();
                false
            }
            Event::InitApply(slice) => {
                self.listed.insert(name(&slice), slice);
                false
            }
            Event::InitDone => {
                self.known = std::mem::take(&mut self.listed);
                self.are_known = true;
                true
            }
            Event::Apply(slice) => {
                self.known.insert(name(&slice), slice);
                true
            }
            Event::Delete(slice) => self.known.remove(&name(&slice)).is_some(),
        }
    }

    /// Returns whether a complete listing has been received.
    pub fn are_known(&self) -> bool {
        self.are_known
    }

    /// Merges all slices into a list.
    ///
    /// # Errors
    /// A port that is missing or ambiguous, an unsupported protocol, an invalid weight, two ready pods with the same
    /// name, or another problem that [`MemberList::new`] finds.
    pub fn list(&self, port: Option<&Port>) -> Result<MemberList> {
        let mut entries: BTreeMap<(String, String), Entry> = BTreeMap::new();
        for slice in self.one_family() {
            let weight = weight(slice)?;
            for pod in &slice.endpoints {
                let Some(address) = pod.addresses.first() else { continue };
                let name = name_of(pod).unwrap_or(address);
                let number = port_number(slice, port, name)?;
                let host =
                    if address.contains(':') { format!("[{address}]") } else { address.clone() };
                let entry = Entry {
                    name: name.to_owned(),
                    endpoint: format!("http://{host}:{number}").parse()?,
                    weight,
                    zone: pod.zone.clone(),
                    presence: presence(pod),
                };
                // If two slices contain the endpoint, the better presence wins, because the other slice is out of date.
                let seen =
                    entries.entry((name.to_owned(), address.clone())).or_insert(entry.clone());
                if rank(entry.presence) < rank(seen.presence) {
                    *seen = entry;
                }
            }
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        // A replaced pod may still be listed at its previous address, so only the best of several entries with the same
        // name is kept. If two of them are ready, both are kept, and the list is refused.
        entries.sort_by_key(|entry| (entry.name.clone(), rank(entry.presence)));
        entries
            .dedup_by(|later, first| later.name == first.name && later.presence != Presence::Ready);
        MemberList::new(entries)
    }

    /// Returns whether a pod has neither a host name nor a pod name.
    pub fn has_unnamed_pod(&self) -> bool {
        self.one_family().flat_map(|slice| &slice.endpoints).any(|pod| name_of(pod).is_none())
    }

    /// Returns the slices of one address family for each Service: IPv4 if there are any, or else IPv6. A dual-stack
    /// Service lists each pod once for each family.
    fn one_family(&self) -> impl Iterator<Item = &EndpointSlice> {
        let of = |family: &'static str| {
            let slices = self.known.values().filter(|slice| !slice.endpoints.is_empty());
            slices.filter(move |slice| slice.address_type == family)
        };
        let has_both: BTreeSet<&str> = of("IPv4").map(service_of).collect();
        of("IPv4").chain(of("IPv6").filter(move |slice| !has_both.contains(service_of(slice))))
    }
}

fn label<'a>(slice: &'a EndpointSlice, name: &str) -> Option<&'a str> {
    slice.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn service_of(slice: &EndpointSlice) -> &str {
    label(slice, SERVICE_LABEL).unwrap_or_default()
}

fn weight(slice: &EndpointSlice) -> Result<f64> {
    let Some(text) = label(slice, WEIGHT_LABEL) else { return Ok(1.0) };
    let weight = text.parse().ok().filter(|weight: &f64| weight.is_finite() && *weight > 0.0);
    weight.ok_or_else(|| MembershipError::Weight {
        service: service_of(slice).to_owned(),
        label: WEIGHT_LABEL,
        text: text.to_owned(),
    })
}

fn name_of(pod: &Pod) -> Option<&String> {
    let of_pod = pod.target_ref.as_ref().and_then(|target| target.name.as_ref());
    pod.hostname.as_ref().or(of_pod)
}

/// Derives the presence from the `serving` condition. The `ready` condition is always true if the Service publishes
/// addresses that are not ready (`publishNotReadyAddresses`). An endpoint of such a Service that is not serving yet is
/// [`Presence::Starting`], because it may answer.
fn presence(pod: &Pod) -> Presence {
    let Some(conditions) = &pod.conditions else { return Presence::Ready };
    let ready = conditions.ready.unwrap_or(true);
    let serving = conditions.serving.unwrap_or(ready);
    match (serving, conditions.terminating.unwrap_or(false)) {
        (true, false) => Presence::Ready,
        (true, true) => Presence::Draining,
        (false, false) if ready => Presence::Starting,
        (false, _) => Presence::Absent,
    }
}

/// Orders presences from best to worst.
fn rank(presence: Presence) -> u8 {
    match presence {
        Presence::Ready => 0,
        Presence::Draining => 1,
        Presence::Starting => 2,
        Presence::Absent => 3,
    }
}

/// Returns the number of the slice's port that `port` selects, after checking its protocols.
fn port_number(slice: &EndpointSlice, port: Option<&Port>, member: &str) -> Result<u16> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let fault = |problem: String| {
        let known: Vec<String> = ports.iter().map(display_port).collect();
        let advice = match known.as_slice() {
            [] => "give it one".to_owned(),
            known => format!("name one of {}", known.join(", ")),
        };
        MembershipError::Port { service: service_of(slice).to_owned(), problem, advice }
    };
    let numbered = |port: &EndpointPort| port.port.and_then(|port| u16::try_from(port).ok());
    let found = match (port, ports) {
        (None, [only]) => Some(only),
        (None, _) => return Err(fault(format!("has {} ports, and none is named", ports.len()))),
        (Some(Port::Named(name)), _) => ports.iter().find(|port| port.name.as_ref() == Some(name)),
        (Some(Port::Number(number)), _) => {
            ports.iter().find(|port| numbered(port) == Some(*number))
        }
    };
    let wanted = || port.map_or_else(String::new, Port::to_string);
    let found = found.ok_or_else(|| fault(format!("has no port `{}`", wanted())))?;
    if let Some(transport) = found.protocol.as_deref().filter(|&transport| transport != "TCP") {
        return Err(fault(format!("has port `{}` for {transport}, and TCP is needed", wanted())));
    }
    if let Some(protocol) = &found.app_protocol
        && !PROTOCOLS.contains(&protocol.to_ascii_lowercase().as_str())
    {
        return Err(MembershipError::Protocol {
            name: member.to_owned(),
            protocol: protocol.clone(),
            supported: "gRPC without TLS",
            advice: "check appProtocol of the Service's port",
        });
    }
    numbered(found).ok_or_else(|| fault("has a port without a number".into()))
}

fn display_port(port: &EndpointPort) -> String {
    let number = port.port.map_or_else(|| "?".into(), |number| number.to_string());
    match port.name.as_deref() {
        None | Some("") => number,
        Some(name) => format!("{name} ({number})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, address: &str, conditions: Value) -> Value {
        json!({"addresses": [address], "hostname": name, "zone": "z1", "conditions": conditions})
    }

    fn ready(name: &str, address: &str) -> Value {
        pod(name, address, json!({"ready": true, "serving": true, "terminating": false}))
    }

    fn slice(name: &str, family: &str, endpoints: &[Value], ports: Value) -> EndpointSlice {
        let labels = json!({SERVICE_LABEL: "io"});
        let slice = json!({
            "metadata": {"name": name, "labels": labels}, "addressType": family,
            "endpoints": endpoints, "ports": ports,
        });
        serde_json::from_value(slice).unwrap()
    }

    /// Sets a label of the slice.
    fn labelled(slice: EndpointSlice, name: &str, text: &str) -> EndpointSlice {
        let mut slice = slice;
        slice.metadata.labels.get_or_insert_default().insert(name.into(), text.into());
        slice
    }

    fn grpc() -> Value {
        json!([{"name": "grpc", "port": 7071, "protocol": "TCP"}])
    }

    fn slices(slices: impl IntoIterator<Item = EndpointSlice>) -> Slices {
        let mut all = Slices::default();
        for slice in slices {
            all.apply(Event::Apply(slice));
        }
        all
    }

    fn shown(slices: &Slices) -> Vec<String> {
        let list = slices.list(Some(&Port::Named("grpc".into()))).unwrap();
        let show =
            |entry: &Entry| format!("{} {} {:?}", entry.name, entry.endpoint, entry.presence);
        list.entries().iter().map(show).collect()
    }

    #[test]
    fn several_slices_are_one_list() {
        let both = [
            slice("b", "IPv4", &[ready("io-1", "10.0.0.2")], grpc()),
            slice("a", "IPv4", &[ready("io-0", "10.0.0.1")], grpc()),
            slice("six", "IPv6", &[ready("io-0", "fd00::1"), ready("io-1", "fd00::2")], grpc()),
        ];
        let all = slices(both.clone());
        assert_eq!(
            shown(&all),
            ["io-0 http://10.0.0.1:7071 Ready", "io-1 http://10.0.0.2:7071 Ready"]
        );
        let zone = all.list(None).unwrap().entries()[0].zone.clone();
        assert_eq!(zone.as_deref(), Some("z1"));
        let [_, _, six] = both;
        assert_eq!(shown(&slices([six]))[0], "io-0 http://[fd00::1]:7071 Ready");
    }

    #[test]
    fn several_services_are_one_list_with_the_weight_of_each() {
        let big = |slice| labelled(labelled(slice, SERVICE_LABEL, "big"), WEIGHT_LABEL, "2.5");
        let all = slices([
            slice("a", "IPv4", &[ready("io-0", "10.0.0.1")], grpc()),
            big(slice("b", "IPv6", &[ready("big-0", "fd00::1")], grpc())),
            big(slice("c", "IPv6", &[ready("big-1", "fd00::2")], grpc())),
        ]);
        let list = all.list(None).unwrap();
        let weights: Vec<_> =
            list.entries().iter().map(|it| (it.name.as_str(), it.weight)).collect();
        assert_eq!(weights, [("big-0", 2.5), ("big-1", 2.5), ("io-0", 1.0)]);
        for text in ["heavy", "", "0", "-1", "inf", "NaN"] {
            let bad = slice("d", "IPv4", &[ready("io-1", "10.0.0.2")], grpc());
            let refused = slices([labelled(bad, WEIGHT_LABEL, text)]).list(None).unwrap_err();
            assert!(refused.is_refusal());
            let expected =
                format!("label bireme.io/weight={text} of Service `io` is not a number above 0");
            assert!(refused.to_string().contains(&expected), "{refused}");
        }
    }

    #[test]
    fn presence_follows_from_the_conditions() {
        let with =
            |conditions| slices([slice("a", "IPv4", &[pod("p", "10.0.0.1", conditions)], grpc())]);
        for (conditions, expected) in [
            (json!({}), "Ready"),
            (json!({"ready": true}), "Ready"),
            (json!({"ready": false}), "Absent"),
            (json!({"ready": false, "serving": true, "terminating": true}), "Draining"),
            (json!({"ready": false, "serving": false, "terminating": true}), "Absent"),
            (json!({"ready": false, "serving": false, "terminating": false}), "Absent"),
            // These occur with publishNotReadyAddresses.
            (json!({"ready": true, "serving": false, "terminating": false}), "Starting"),
            (json!({"ready": true, "serving": false, "terminating": true}), "Absent"),
            (json!({"ready": true, "serving": true, "terminating": true}), "Draining"),
        ] {
            assert!(shown(&with(conditions.clone()))[0].ends_with(expected), "{conditions}");
        }
    }

    #[test]
    fn a_moved_endpoint_and_a_replaced_pod_are_one_member_each() {
        let gone = json!({"ready": false, "serving": false, "terminating": true});
        let moved = slices([
            slice("a", "IPv4", &[pod("io-0", "10.0.0.1", gone.clone())], grpc()),
            slice("b", "IPv4", &[ready("io-0", "10.0.0.1")], grpc()),
            slice(
                "c",
                "IPv4",
                &[pod("io-1", "10.0.0.2", gone.clone()), ready("io-1", "10.0.0.9")],
                grpc(),
            ),
        ]);
        assert_eq!(
            shown(&moved),
            ["io-0 http://10.0.0.1:7071 Ready", "io-1 http://10.0.0.9:7071 Ready"]
        );
        let pods =
            [pod("io-0", "10.0.0.1", gone), pod("io-0", "10.0.0.2", json!({"ready": false}))];
        assert_eq!(shown(&slices([slice("a", "IPv4", &pods, grpc())])).len(), 1, "restarting");
        let twice =
            slices([slice("a", "IPv4", &[ready("x", "10.0.0.1"), ready("x", "10.0.0.2")], grpc())]);
        let message = twice.list(None).unwrap_err().to_string();
        assert!(message.contains("two I/O nodes are named `x`"), "{message}");
    }

    #[test]
    fn members_are_named_after_host_then_pod_then_address() {
        let by_pod =
            json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "io-x7"}});
        let bare = json!({"addresses": ["10.0.0.2"]});
        let named = slices([slice("a", "IPv4", std::slice::from_ref(&by_pod), grpc())]);
        assert!(shown(&named)[0].starts_with("io-x7 ") && !named.has_unnamed_pod());
        let bare = slices([slice("a", "IPv4", &[by_pod, bare], grpc())]);
        assert!(shown(&bare)[0].starts_with("10.0.0.2 ") && bare.has_unnamed_pod());
    }

    #[test]
    fn port_errors_list_the_existing_ports() {
        let with = |ports| slices([slice("a", "IPv4", &[ready("p", "10.0.0.1")], ports)]);
        let refused =
            |ports, port: Option<Port>| with(ports).list(port.as_ref()).unwrap_err().to_string();
        let two = json!([{"name": "grpc", "port": 7071}, {"name": "http", "port": 80}]);
        let named = |name: &str| Some(Port::Named(name.into()));
        for (message, expected) in [
            (
                refused(two.clone(), named("rpc")),
                "`io` has no port `rpc`; name one of grpc (7071), http (80)",
            ),
            (refused(two.clone(), Some(Port::Number(7070))), "has no port `7070`; name one of"),
            (refused(two.clone(), None), "has 2 ports, and none is named; name one of"),
            (refused(Value::Null, None), "has 0 ports, and none is named; give it one"),
            (refused(json!([{"name": "grpc", "port": 1, "protocol": "UDP"}]), None), "for UDP"),
            (
                refused(json!([{"name": "grpc", "port": 1, "appProtocol": "https"}]), None),
                "`p` speaks `https`, and this node speaks gRPC without TLS",
            ),
        ] {
            assert!(message.contains(expected), "{message}");
        }
        let list = with(two).list(Some(&Port::Number(80))).unwrap();
        assert_eq!(list.entries()[0].endpoint.to_string(), "http://10.0.0.1:80");
    }

    #[test]
    fn a_listing_is_used_once_it_is_complete() {
        let one = |name: &str| slice(name, "IPv4", &[ready(name, "10.0.0.1")], grpc());
        let mut all = slices([one("old")]);
        assert!(!all.apply(Event::Init));
        assert!(!all.apply(Event::InitApply(one("new"))));
        assert_eq!(shown(&all), ["old http://10.0.0.1:7071 Ready"]);
        assert!(all.apply(Event::InitDone));
        assert_eq!(shown(&all), ["new http://10.0.0.1:7071 Ready"]);
        assert!(all.apply(Event::Delete(one("new"))));
        assert!(!all.apply(Event::Delete(one("new"))));
        assert_eq!(shown(&all), [""; 0]);
    }
}
