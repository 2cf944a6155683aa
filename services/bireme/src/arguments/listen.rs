//! Addresses to listen on.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// What is expected of an address, with an example.
pub const ADDRESS_EXPECTED: &str =
    "expected an address and a port, such as \"127.0.0.1:9464\" or \"[::1]:9464\"";

/// `0.0.0.0:7070`, `[::1]:7070`, or a name in place of the address, which is looked up: `localhost:7070`. Of several
/// addresses the first of IPv4 is taken, which clients try by themselves.
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
    // That the look-up fails tells no more than that it finds nothing.
    let found = look_up(text).unwrap_or_default();
    let chosen = found.iter().find(|address| address.is_ipv4()).or(found.first());
    chosen.copied().ok_or_else(|| format!("no address has that name; {ADDRESS_EXPECTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_are_written_out_are_not_looked_up() {
        let parse = |text| parse(text, |name| panic!("{name} is looked up"));
        assert_eq!(parse("0.0.0.0:80"), Ok(SocketAddr::from(([0, 0, 0, 0], 80))));
        assert_eq!(parse("[::1]:80").unwrap().port(), 80);
        for bad in ["9090", ":9090", "localhost", "localhost:http", "1.2.3.4:99999", ""] {
            assert_eq!(parse(bad), Err(ADDRESS_EXPECTED.to_owned()), "{bad}");
        }
    }

    #[test]
    fn of_a_name_the_first_address_of_ipv4_is_taken() {
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
