//! Reads members from DNS at a fixed interval.
//!
//! SRV records are preferred. The `_grpc._tcp` records of a headless Service name each pod of a StatefulSet, and
//! a pod keeps that name when it restarts with another address. Each connection resolves the name again. SRV
//! weights and priorities are ignored, because CoreDNS derives the weights from the number of pods. If the name
//! has no SRV records, each of its addresses is a member that is named after the address.

use std::net::IpAddr;
use std::time::Duration;

use hickory_resolver::config::{LookupIpStrategy, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::proto::rr::{RData, RecordType};
use hickory_resolver::{Resolver, TokioResolver};
use tokio::time::sleep;
use tracing::warn;

use crate::error::{MembershipError, Result};
use crate::list::{Entry, MemberList, Presence};
use crate::source::ListSender;

/// The name to look up.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// The host name.
    pub host: String,
    /// The port of members that are known by their addresses only.
    pub port: u16,
}

/// The records of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    /// The target and port of each SRV record.
    Services(Vec<(String, u16)>),
    /// The addresses of the A and AAAA records.
    Addresses(Vec<IpAddr>),
}

/// Sends the list made from the records, now and after each change, until the receiver is dropped. Uses the system's
/// resolver if `resolver` is `None`.
pub(crate) async fn follow(
    lookup: Lookup,
    resolver: Option<TokioResolver>,
    interval: Duration,
    lists: ListSender,
) {
    let mut reader = Reader { lookup, resolver, has_services: false, has_warned: false };
    let mut last: Option<std::result::Result<Answer, String>> = None;
    loop {
        let answer = reader.read().await;
        if last.as_ref() != Some(&answer) {
            if lists.send(reader.list(&answer)).await.is_err() {
                return;
            }
            last = Some(answer);
        }
        tokio::select! {
            () = sleep(interval) => {}
            () = lists.closed() => return,
        }
    }
}

struct Reader {
    lookup: Lookup,
    resolver: Option<TokioResolver>,
    /// Whether SRV records were found. From then on addresses are not used, because they would be other names for the
    /// same members.
    has_services: bool,
    has_warned: bool,
}

impl Reader {
    async fn read(&mut self) -> std::result::Result<Answer, String> {
        let host = self.lookup.host.clone();
        let resolver = self.resolver().map_err(|error| error.to_string())?;
        match resolver.lookup(format!("_grpc._tcp.{host}"), RecordType::SRV).await {
            Ok(found) => {
                let mut services: Vec<(String, u16)> = Vec::new();
                for record in found.answers() {
                    if let RData::SRV(service) = &record.data {
                        services.push((service.target.to_ascii(), service.port));
                    }
                }
                services.sort();
                services.dedup();
                self.has_services = true;
                return Ok(Answer::Services(services));
            }
            Err(error) if !error.is_no_records_found() => return Err(error.to_string()),
            Err(_) if self.has_services => return Ok(Answer::Services(Vec::new())),
            Err(_) => {}
        }
        match resolver.lookup_ip(host.as_str()).await {
            Ok(found) => {
                let mut addresses: Vec<IpAddr> = found.iter().collect();
                addresses.sort();
                addresses.dedup();
                Ok(Answer::Addresses(addresses))
            }
            Err(error) if error.is_nx_domain() => Err("there is no such name".into()),
            Err(error) if error.is_no_records_found() => Ok(Answer::Addresses(Vec::new())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Returns the resolver. It is created on first use, because the system's configuration may not exist when
    /// the node starts.
    fn resolver(&mut self) -> std::result::Result<TokioResolver, NetError> {
        if let Some(resolver) = &self.resolver {
            return Ok(resolver.clone());
        }
        let mut builder = Resolver::builder_tokio()?;
        configure(builder.options_mut());
        let resolver = builder.build()?;
        self.resolver = Some(resolver.clone());
        Ok(resolver)
    }

    fn list(&mut self, answer: &std::result::Result<Answer, String>) -> Result<MemberList> {
        let Lookup { host, port } = &self.lookup;
        let answer = answer.as_ref().map_err(|problem| MembershipError::Unreachable {
            source_name: format!("dns:{host}:{port}"),
            problem: problem.clone(),
        })?;
        if !self.has_warned && names_are_addresses(answer) {
            self.has_warned = true;
            warn!(
                host,
                "DNS has no host names for the I/O nodes, so they are named after their addresses. A node \
                 that restarts with another address counts as a new node, and its chunks are filled again. \
                 Provide SRV records (a headless Service of a StatefulSet, with a port named `grpc`)"
            );
        }
        list(answer, *port)
    }
}

/// Turns the resolver's cache off, so that each poll asks the server, and looks up IPv6 addresses only for hosts
/// without IPv4 addresses, so that a dual-stack host is one member.
fn configure(options: &mut ResolverOpts) {
    options.cache_size = 0;
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
}

/// Converts an answer to a member list.
fn list(answer: &Answer, port: u16) -> Result<MemberList> {
    let entry = |name: String, authority: String| {
        Ok(Entry {
            name,
            endpoint: format!("http://{authority}").parse()?,
            weight: 1.0,
            zone: None,
            presence: Presence::Ready,
        })
    };
    let entries = match answer {
        Answer::Services(services) => services.iter().map(|(target, port)| {
            let target = target.trim_end_matches('.');
            let label = target.split('.').next().unwrap_or(target);
            entry(label.to_owned(), format!("{target}:{port}"))
        }),
        Answer::Addresses(addresses) => {
            let at = |address: &IpAddr| {
                let authority = std::net::SocketAddr::new(*address, port).to_string();
                entry(authority.clone(), authority)
            };
            return MemberList::new(addresses.iter().map(at).collect::<Result<_>>()?);
        }
    };
    MemberList::new(entries.collect::<Result<_>>()?)
}

/// Returns whether members are named after addresses. CoreDNS gives pods without a host name labels such as
/// `10-0-0-7`.
fn names_are_addresses(answer: &Answer) -> bool {
    match answer {
        Answer::Addresses(addresses) => !addresses.is_empty(),
        Answer::Services(services) => services.iter().any(|(target, _)| {
            let label = target.split('.').next().unwrap_or_default();
            let is_hex = |c: char| c.is_ascii_hexdigit() || c == '-';
            label.matches('-').count() >= 3 && label.chars().all(is_hex)
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use hickory_resolver::config::{NameServerConfig, ResolverConfig};
    use hickory_resolver::net::runtime::TokioRuntimeProvider;
    use hickory_resolver::proto::op::{Message, ResponseCode};
    use hickory_resolver::proto::rr::rdata::{A, SRV};
    use hickory_resolver::proto::rr::{Name, Record};
    use tokio::net::UdpSocket;
    use tokio::sync::mpsc;

    use super::*;

    fn shown(list: &MemberList) -> Vec<String> {
        let show = |entry: &Entry| format!("{} {}", entry.name, entry.endpoint);
        list.entries().iter().map(show).collect()
    }

    fn services(all: &[(&str, u16)]) -> Answer {
        Answer::Services(all.iter().map(|&(target, port)| (target.to_owned(), port)).collect())
    }

    #[test]
    fn members_are_named_after_srv_targets() {
        let answer = services(&[("io-1.io.ns.svc.", 7071), ("io-0.io.ns.svc.", 7072)]);
        let list = list(&answer, 1).unwrap();
        assert_eq!(
            shown(&list),
            ["io-0 http://io-0.io.ns.svc:7072", "io-1 http://io-1.io.ns.svc:7071"]
        );
        assert!(!names_are_addresses(&answer));
    }

    #[test]
    fn members_without_host_names_are_named_after_addresses() {
        let answer =
            Answer::Addresses(vec!["10.0.0.2".parse().unwrap(), "fd00::1".parse().unwrap()]);
        assert_eq!(
            shown(&list(&answer, 7071).unwrap()),
            ["10.0.0.2:7071 http://10.0.0.2:7071", "[fd00::1]:7071 http://[fd00::1]:7071"]
        );
        assert!(names_are_addresses(&answer));
        assert!(names_are_addresses(&services(&[("10-0-0-7.io.ns.svc.", 1)])));
        assert!(!names_are_addresses(&services(&[("io-be-ad-0.io.ns.svc.", 1)])));
    }

    #[test]
    fn invalid_records_are_refused() {
        let message = |all: &[(&str, u16)]| list(&services(all), 1).unwrap_err().to_string();
        assert!(message(&[("a.x.", 1), ("a.x.", 2)]).contains("two I/O nodes are named `a`"));
        assert!(message(&[("a.x.", 0)]).contains("names no port"));
    }

    /// The server's records: SRV of `_grpc._tcp.io.test`, and addresses of `io.test`.
    #[derive(Clone, Default)]
    struct Zone {
        services: Vec<(&'static str, u16)>,
        addresses: Vec<[u8; 4]>,
        is_broken: bool,
    }

    fn response(zone: &Zone, request: &Message) -> Message {
        let mut response = Message::response(request.metadata.id, request.metadata.op_code);
        let query = request.queries[0].clone();
        let record = |data| Record::from_rdata(query.name.clone(), 0, data);
        let name = query.name.to_ascii();
        match (name.trim_end_matches('.'), query.query_type) {
            _ if zone.is_broken => response.metadata.response_code = ResponseCode::ServFail,
            ("_grpc._tcp.io.test", RecordType::SRV) => {
                response.add_answers(zone.services.iter().map(|(target, port)| {
                    record(RData::SRV(SRV::new(0, 25, *port, Name::from_ascii(target).unwrap())))
                }));
            }
            ("io.test", RecordType::A) => {
                let addresses = zone.addresses.iter();
                response.add_answers(
                    addresses.map(|&[a, b, c, d]| record(RData::A(A::new(a, b, c, d)))),
                );
            }
            ("io.test", RecordType::AAAA) => {
                let address = std::net::Ipv6Addr::LOCALHOST.into();
                response.add_answer(record(RData::AAAA(address)));
            }
            ("io.test", _) => {}
            _ => response.metadata.response_code = ResponseCode::NXDomain,
        }
        response.add_query(query);
        response
    }

    /// Starts a name server and returns a resolver that queries it.
    async fn server(zone: &Arc<Mutex<Zone>>) -> TokioResolver {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let port = socket.local_addr().unwrap().port();
        let zone = Arc::clone(zone);
        tokio::spawn(async move {
            let mut buffer = [0; 1500];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let request = Message::from_vec(&buffer[..length]).unwrap();
                let answer = response(&zone.lock().unwrap(), &request).to_vec().unwrap();
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        let mut server = NameServerConfig::udp("127.0.0.1".parse().unwrap());
        server.connections[0].port = port;
        let config = ResolverConfig::from_name_servers(vec![server]);
        let mut builder = Resolver::builder_with_config(config, TokioRuntimeProvider::default());
        configure(builder.options_mut());
        builder.build().unwrap()
    }

    fn follow_test_zone(resolver: TokioResolver, host: &str) -> mpsc::Receiver<Result<MemberList>> {
        let (sender, lists) = mpsc::channel(1);
        let lookup = Lookup { host: host.into(), port: 7071 };
        tokio::spawn(follow(lookup, Some(resolver), Duration::from_millis(1), sender));
        lists
    }

    #[tokio::test]
    async fn srv_records_are_followed() {
        let zone = Arc::new(Mutex::new(Zone {
            services: vec![("io-1.io.test.", 7071), ("io-0.io.test.", 7071)],
            addresses: vec![[10, 0, 0, 1]],
            ..Zone::default()
        }));
        let change = |change: fn(&mut Zone)| change(&mut zone.lock().unwrap());
        let mut lists = follow_test_zone(server(&zone).await, "io.test.");
        let first = lists.recv().await.unwrap().unwrap();
        assert_eq!(
            shown(&first),
            ["io-0 http://io-0.io.test:7071", "io-1 http://io-1.io.test:7071"]
        );
        change(|zone| zone.services.truncate(1));
        let second = lists.recv().await.unwrap().unwrap();
        assert_eq!(shown(&second), ["io-1 http://io-1.io.test:7071"]);
        change(|zone| zone.is_broken = true);
        assert!(!lists.recv().await.unwrap().unwrap_err().is_refusal());
        // No pod is ready. The reader must not fall back to addresses.
        change(|zone| *zone = Zone { services: vec![], is_broken: false, ..zone.clone() });
        assert_eq!(lists.recv().await.unwrap().unwrap(), MemberList::default());
        change(|zone| zone.services.push(("io-0.io.test.", 0)));
        assert!(lists.recv().await.unwrap().unwrap_err().is_refusal());
    }

    #[tokio::test]
    async fn addresses_are_used_if_there_are_no_srv_records() {
        let zone = Zone { addresses: vec![[10, 0, 0, 1], [10, 0, 0, 2]], ..Zone::default() };
        let resolver = server(&Arc::new(Mutex::new(zone))).await;
        let mut lists = follow_test_zone(resolver.clone(), "io.test.");
        let list = lists.recv().await.unwrap().unwrap();
        let at = |address: &str| format!("{address}:7071 http://{address}:7071");
        assert_eq!(shown(&list), [at("10.0.0.1"), at("10.0.0.2")]);
        let mut lists = follow_test_zone(resolver, "other.test.");
        let message = lists.recv().await.unwrap().unwrap_err().to_string();
        assert!(message.contains("dns:other.test.:7071: there is no such name"), "{message}");
    }
}
