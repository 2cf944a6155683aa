//! Addresses to listen on.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The expected form of an address, with an example.
pub const ADDRESS_EXPECTED: &str =
    "expected an address and a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"";

/// Parses `0.0.0.0:7070`, `[::1]:7070`, or a host name such as `localhost:7070`, which is looked up. If the name has
/// several addresses, the first IPv4 address is used (or the first address, if none is IPv4), because clients that
/// connect to the name try that address too.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    parse(text, |name| name.to_socket_addrs().map(Iterator::collect))
}

fn parse(
    text: &str,
    look_up: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>>,
) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let has_port = text
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(ADDRESS_EXPECTED.to_owned());
    }
    // A failed look-up is handled like one that finds nothing.
    let found = look_up(text).unwrap_or_default();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| format!("the name has no address; {ADDRESS_EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numeric_addresses_are_not_looked_up() {
        let parse = |text| parse(text, |name| panic!("{name} is looked up"));
        assert_eq!(parse("0.0.0.0:80"), Ok(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert_eq!(parse("[::1]:80").unwrap().port(), 80);
        for bad in ["9090", ":9090", "localhost", "localhost:http", "1.2.3.4:99999", ""] {
            assert_eq!(parse(bad), Err(ADDRESS_EXPECTED.to_owned()), "{bad}");
        }
    }

    #[test]
    fn the_first_ipv4_address_of_a_name_is_used() {
        let found = ["[::1]:90", "127.0.0.1:90", "127.0.0.2:90"].map(|it| it.parse().unwrap());
        let named = |found: &[SocketAddr]| {
            parse("here:90", |name| {
                assert_eq!(name, "here:90");
                Ok(found.to_vec())
            })
        };
        assert_eq!(named(&found), Ok(found[1]));
        assert_eq!(named(&found[..1]), Ok(found[0]));
        let failed = parse("here:90", |_| Err(io::ErrorKind::NotFound.into()));
        for unknown in [named(&[]), failed] {
            let said = unknown.unwrap_err();
            assert!(said.contains("no address") && said.contains("127.0.0.1:9464"), "{said}");
        }
    }
}
