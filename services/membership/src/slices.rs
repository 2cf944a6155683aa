//! Members from EndpointSlices: several slices, of one Service or more, are one list. Pure.
//!
//! A Service's endpoints come in slices of up to 100, one kind of address each, in no order; while the
//! controller moves an endpoint it may be in two of them for a moment. A member's name is the endpoint's
//! host name (which pods of a StatefulSet have, and keep when they restart), else its pod's name, else
//! its address. Its weight is its Service's: Kubernetes copies a Service's labels to its slices.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::discovery::v1::{Endpoint as Pod, EndpointPort, EndpointSlice};
use kube::runtime::watcher::Event;

use crate::error::{MembershipError, Result};
use crate::list::{Entry, MemberList, Presence};
use crate::source::Port;

/// The label by which slices tell their Service.
pub(crate) const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The label by which a Service tells the weight of each of its nodes; 1 without it.
const WEIGHT_LABEL: &str = "bireme.io/weight";

/// What a port may say that it speaks: gRPC without TLS, by the names that are in use for it.
const PROTOCOLS: [&str; 6] = ["grpc", "h2c", "kubernetes.io/h2c", "http2", "http", "tcp"];

/// The Services' slices, as a watch tells of them.
#[derive(Debug, Default)]
pub(crate) struct Slices {
    known: BTreeMap<String, EndpointSlice>,
    /// Those of a listing that is not complete yet.
    listed: BTreeMap<String, EndpointSlice>,
    are_known: bool,
}

impl Slices {
    /// Whether there is a new list now: never in the middle of a listing.
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

    /// Whether there has been a whole listing.
    pub fn are_known(&self) -> bool {
        self.are_known
    }

    /// The list that they make together.
    ///
    /// # Errors
    /// A port that is not there or not named, another protocol, a weight that is none, two pods of one name.
    pub fn list(&self, port: Option<&Port>) -> Result<MemberList> {
        let mut entries: BTreeMap<(String, String), Entry> = BTreeMap::new();
        for slice in self.family() {
            let weight = weight(slice)?;
            for pod in &slice.endpoints {
                let Some(address) = pod.addresses.first() else { continue };
                let name = name_of(pod).unwrap_or(address);
                let number = number(slice, port, name)?;
                let host =
                    if address.contains(':') { format!("[{address}]") } else { address.clone() };
                let entry = Entry {
                    name: name.to_owned(),
                    endpoint: format!("http://{host}:{number}").parse()?,
                    weight,
                    zone: pod.zone.clone(),
                    presence: presence(pod),
                };
                // In two slices at once: the one that says more of it counts.
                let seen =
                    entries.entry((name.to_owned(), address.clone())).or_insert(entry.clone());
                if rank(entry.presence) < rank(seen.presence) {
                    *seen = entry;
                }
            }
        }
        let mut entries: Vec<Entry> = entries.into_values().collect();
        // A pod that was replaced may still be told of at its last address.
        entries.sort_by_key(|entry| (entry.name.clone(), rank(entry.presence)));
        entries
            .dedup_by(|later, first| later.name == first.name && later.presence != Presence::Ready);
        MemberList::new(entries)
    }

    /// Whether some pod has no name but its address.
    pub fn nameless(&self) -> bool {
        self.family().flat_map(|slice| &slice.endpoints).any(|pod| name_of(pod).is_none())
    }

    /// The slices, of each Service by one kind of address: one with both has each pod twice.
    fn family(&self) -> impl Iterator<Item = &EndpointSlice> {
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

/// By `serving`, as `ready` is always true where a Service publishes addresses that are not ready: who is not ready is
/// then to be asked where it answers.
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

fn rank(presence: Presence) -> u8 {
    match presence {
        Presence::Ready => 0,
        Presence::Draining => 1,
        Presence::Starting => 2,
        Presence::Absent => 3,
    }
}

/// The number of the port that is meant, and spoken on.
fn number(slice: &EndpointSlice, port: Option<&Port>, member: &str) -> Result<u16> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let fault = |problem: String| {
        let known: Vec<String> = ports.iter().map(shown).collect();
        let mend = match known.as_slice() {
            [] => "give it one".to_owned(),
            known => format!("name one of {}", known.join(", ")),
        };
        MembershipError::Port { service: service_of(slice).to_owned(), problem, mend }
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
    let meant = || port.map_or_else(String::new, Port::to_string);
    let found = found.ok_or_else(|| fault(format!("has no port `{}`", meant())))?;
    if let Some(transport) = found.protocol.as_deref().filter(|&transport| transport != "TCP") {
        return Err(fault(format!("has port `{}` for {transport}, and TCP is needed", meant())));
    }
    if let Some(protocol) = &found.app_protocol
        && !PROTOCOLS.contains(&protocol.to_ascii_lowercase().as_str())
    {
        return Err(MembershipError::Protocol {
            name: member.to_owned(),
            protocol: protocol.clone(),
            spoken: "gRPC without TLS",
            mend: "see appProtocol of the Service's port",
        });
    }
    numbered(found).ok_or_else(|| fault("has a port without a number".into()))
}

fn shown(port: &EndpointPort) -> String {
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

    /// The same with a label more, or another.
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
    fn services_of_other_sizes_are_one_list_with_the_weight_of_each() {
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
            let said =
                format!("label bireme.io/weight={text} of Service `io` is no number above 0");
            assert!(refused.to_string().contains(&said), "{refused}");
        }
    }

    #[test]
    fn conditions_say_who_is_there() {
        let with =
            |conditions| slices([slice("a", "IPv4", &[pod("p", "10.0.0.1", conditions)], grpc())]);
        for (conditions, expected) in [
            (json!({}), "Ready"),
            (json!({"ready": true}), "Ready"),
            (json!({"ready": false}), "Absent"),
            (json!({"ready": false, "serving": true, "terminating": true}), "Draining"),
            (json!({"ready": false, "serving": false, "terminating": true}), "Absent"),
            (json!({"ready": false, "serving": false, "terminating": false}), "Absent"),
            // As with publishNotReadyAddresses.
            (json!({"ready": true, "serving": false, "terminating": false}), "Starting"),
            (json!({"ready": true, "serving": false, "terminating": true}), "Absent"),
            (json!({"ready": true, "serving": true, "terminating": true}), "Draining"),
        ] {
            assert!(shown(&with(conditions.clone()))[0].ends_with(expected), "{conditions}");
        }
    }

    #[test]
    fn an_endpoint_on_the_move_and_a_pod_replaced_are_one_member_each() {
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
        let said = twice.list(None).unwrap_err().to_string();
        assert!(said.contains("two I/O nodes are named `x`"), "{said}");
    }

    #[test]
    fn names_are_the_hosts_else_the_pods_else_addresses() {
        let by_pod =
            json!({"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "name": "io-x7"}});
        let bare = json!({"addresses": ["10.0.0.2"]});
        let named = slices([slice("a", "IPv4", std::slice::from_ref(&by_pod), grpc())]);
        assert!(shown(&named)[0].starts_with("io-x7 ") && !named.nameless());
        let bare = slices([slice("a", "IPv4", &[by_pod, bare], grpc())]);
        assert!(shown(&bare)[0].starts_with("10.0.0.2 ") && bare.nameless());
    }

    #[test]
    fn wrong_ports_are_refused_with_those_that_there_are() {
        let with = |ports| slices([slice("a", "IPv4", &[ready("p", "10.0.0.1")], ports)]);
        let refused =
            |ports, port: Option<Port>| with(ports).list(port.as_ref()).unwrap_err().to_string();
        let two = json!([{"name": "grpc", "port": 7071}, {"name": "http", "port": 80}]);
        let named = |name: &str| Some(Port::Named(name.into()));
        for (said, expected) in [
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
            assert!(said.contains(expected), "{said}");
        }
        let list = with(two).list(Some(&Port::Number(80))).unwrap();
        assert_eq!(list.entries()[0].endpoint.to_string(), "http://10.0.0.1:80");
    }

    #[test]
    fn a_listing_counts_once_it_is_complete() {
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
