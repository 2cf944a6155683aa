//! `[NAME=]ENDPOINT`: an I/O node.

use std::str::FromStr;

use client::Endpoint;

/// An I/O node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoEndpoint {
    /// The name that placement uses. If it is `None`, placement uses the endpoint.
    pub name: Option<String>,
    /// The address on which it listens.
    pub endpoint: Endpoint,
}

impl FromStr for IoEndpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, endpoint) = match text.split_once('=') {
            Some((name, _)) if name.trim().is_empty() => {
                return Err("the name before `=` is empty".into());
            }
            Some((name, endpoint)) => (Some(name.trim().to_owned()), endpoint),
            None => (None, text),
        };
        let endpoint =
            endpoint.parse().map_err(|error: client::EndpointError| error.to_string())?;
        Ok(Self { name, endpoint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_given() {
        let node: IoEndpoint = "io-1=10.0.0.7:7071".parse().unwrap();
        assert_eq!(node.name.as_deref(), Some("io-1"));
        assert_eq!(node.endpoint.to_string(), "http://10.0.0.7:7071");
        let node: IoEndpoint = "http://io-0:7071".parse().unwrap();
        assert_eq!((node.name, node.endpoint.to_string()), (None, "http://io-0:7071".into()));
        assert!("=x:1".parse::<IoEndpoint>().unwrap_err().contains("empty"));
        assert!("io-0".parse::<IoEndpoint>().unwrap_err().contains("names no port"));
    }
}
