//! The source of the member list, its text form, and the channel on which it sends its lists.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::error::MembershipError;
use crate::list::MemberList;

/// The channel on which a source sends its lists. Its capacity is 1, so a source waits until its last list has been
/// taken.
pub(crate) type ListSender = mpsc::Sender<Result<MemberList, MembershipError>>;

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Port {
    /// The port's name.
    Named(String),
    /// The port's number.
    Number(u16),
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A source that can be followed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub enum Source {
    /// A file of `[[io_nodes]]`.
    File(PathBuf),
    /// The SRV or address records of a DNS name.
    Dns {
        /// The name.
        host: String,
        /// The port of the nodes if the name has no SRV records.
        port: u16,
    },
    /// The EndpointSlices of Services.
    Kubernetes {
        /// The Services' namespace. `None` is the namespace that this node runs in.
        namespace: Option<String>,
        /// The Services' names; at least one. Nodes of different sizes can be in different Services.
        services: Vec<String>,
        /// The Services' port. Required if a Service has more than one.
        port: Option<Port>,
    },
}

impl FromStr for Source {
    type Err = MembershipError;

    fn from_str(text: &str) -> Result<Self, MembershipError> {
        let fault = |problem| MembershipError::Source { text: text.into(), problem };
        match text.split_once(':') {
            Some(("file", "")) => Err(fault("the file has no path")),
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some(("dns", rest)) => {
                let (host, port) =
                    rest.rsplit_once(':').ok_or_else(|| fault("there is no port"))?;
                let port = port.parse().ok().filter(|&port: &u16| port > 0);
                let port = port.ok_or_else(|| fault("the port is not a number from 1 to 65535"))?;
                match host {
                    "" => Err(fault("there is no host name")),
                    host => Ok(Self::Dns { host: host.into(), port }),
                }
            }
            Some(("kubernetes", rest)) => {
                let (namespace, rest) = match rest.split_once('/') {
                    Some((namespace, rest)) => (Some(namespace), rest),
                    None => (None, rest),
                };
                let (services, port) = match rest.split_once(':') {
                    Some((services, port)) => (services, Some(port)),
                    None => (rest, None),
                };
                let services: Vec<&str> = services.split(',').collect();
                let is_label = |label: &str| {
                    let is_one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
                    !label.is_empty() && label.len() <= 63 && label.chars().all(is_one)
                };
                let names = namespace.into_iter().chain(services.iter().copied()).chain(port);
                if !names.into_iter().all(is_label) {
                    return Err(fault(
                        "namespace, Services and port may only have lower-case letters, digits and `-`",
                    ));
                }
                let port = match port.map(|port| (port, port.parse())) {
                    None => None,
                    Some((_, Ok(0))) => return Err(fault("port 0 is not valid")),
                    Some((_, Ok(number))) => Some(Port::Number(number)),
                    Some((name, Err(_))) if name.contains(|c: char| c.is_ascii_lowercase()) => {
                        Some(Port::Named(name.into()))
                    }
                    Some(_) => return Err(fault("the port is above 65535")),
                };
                let namespace = namespace.map(str::to_owned);
                let services = services.into_iter().map(str::to_owned).collect();
                Ok(Self::Kubernetes { namespace, services, port })
            }
            _ => Err(fault("it does not begin with dns:, file: or kubernetes:")),
        }
    }
}

impl TryFrom<String> for Source {
    type Error = MembershipError;

    fn try_from(text: String) -> Result<Self, MembershipError> {
        text.parse()
    }
}

impl From<Source> for String {
    fn from(source: Source) -> Self {
        source.to_string()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Dns { host, port } => write!(f, "dns:{host}:{port}"),
            Self::Kubernetes { namespace, services, port } => {
                f.write_str("kubernetes:")?;
                if let Some(namespace) = namespace {
                    write!(f, "{namespace}/")?;
                }
                f.write_str(&services.join(","))?;
                port.iter().try_for_each(|port| write!(f, ":{port}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Source {
        text.parse().unwrap()
    }

    #[test]
    fn sources_are_parsed_and_displayed_in_the_same_form() {
        let kubernetes = |namespace: Option<&str>, services: &[&str], port| Source::Kubernetes {
            namespace: namespace.map(str::to_owned),
            services: services.iter().map(|&service| service.to_owned()).collect(),
            port,
        };
        let grpc = Some(Port::Named("grpc".into()));
        let host = "io.bireme.svc.cluster.local".to_owned();
        for (text, source) in [
            ("file:/etc/bireme/io.toml", Source::File("/etc/bireme/io.toml".into())),
            ("dns:io.bireme.svc.cluster.local:7071", Source::Dns { host, port: 7071 }),
            ("kubernetes:bireme/io:grpc", kubernetes(Some("bireme"), &["io"], grpc.clone())),
            ("kubernetes:bireme/io,big:grpc", kubernetes(Some("bireme"), &["io", "big"], grpc)),
            ("kubernetes:io", kubernetes(None, &["io"], None)),
            ("kubernetes:io:7071", kubernetes(None, &["io"], Some(Port::Number(7071)))),
        ] {
            assert_eq!(read(text), source);
            assert_eq!(source.to_string(), text);
        }
    }

    #[test]
    fn errors_of_invalid_sources_show_the_valid_forms() {
        for (text, problem) in [
            ("", "does not begin with"),
            ("consul:x", "does not begin with"),
            ("file:", "no path"),
            ("dns:host", "no port"),
            ("dns:host:0", "not a number from 1"),
            ("dns:host:99999", "not a number from 1"),
            ("dns::7071", "no host name"),
            ("kubernetes:", "lower-case letters"),
            ("kubernetes:a/b/c", "lower-case letters"),
            ("kubernetes:/io", "lower-case letters"),
            ("kubernetes:io:", "lower-case letters"),
            ("kubernetes:io,:grpc", "lower-case letters"),
            ("kubernetes:io:0", "port 0"),
            ("kubernetes:io:70000", "above 65535"),
        ] {
            let message = text.parse::<Source>().unwrap_err().to_string();
            assert!(
                message.contains(problem) && message.contains("dns:HOST:PORT"),
                "{text}: {message}"
            );
        }
    }
}
