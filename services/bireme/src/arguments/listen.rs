//! Addresses to listen on.

use std::net::{SocketAddr, ToSocketAddrs};

/// What is expected of an address, with an example.
pub const ADDRESS_EXPECTED: &str =
    "expected an address and a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"";

/// `0.0.0.0:7070`, `[::1]:7070`, or a name in place of the address, which is looked up: `localhost:7070`. Of several
/// addresses the first of IPv4 is taken, which clients try by themselves.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(ADDRESS_EXPECTED.to_owned());
    }
    let found = text
        .to_socket_addrs()
        .map_err(|_| format!("no address has that name; {ADDRESS_EXPECTED}"))?;
    let found: Vec<SocketAddr> = found.collect();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| format!("no address has that name; {ADDRESS_EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_out_or_named() {
        assert_eq!(parse_listen("0.0.0.0:80"), Ok(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert_eq!(parse_listen("[::1]:80").unwrap().port(), 80);
        assert_eq!(parse_listen("localhost:9090"), Ok(SocketAddr::from(([127, 0, 0, 1], 9090))));
        for bad in ["9090", ":9090", "localhost", "localhost:http", "1.2.3.4:99999", ""] {
            assert_eq!(parse_listen(bad), Err(ADDRESS_EXPECTED.to_owned()), "{bad}");
        }
        let unknown = parse_listen("no such host:1").unwrap_err();
        assert!(unknown.contains("no address") && unknown.contains("127.0.0.1:9464"), "{unknown}");
    }
}
