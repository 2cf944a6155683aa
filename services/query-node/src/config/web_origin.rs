//! The origins of web pages, as the setting `browser_origins` names them.

use serde::{Deserialize, Serialize};

/// The origin of a web page, in the form in which browsers send it: `https://app.example.com`, `http://localhost:3000`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct WebOrigin(String);

impl WebOrigin {
    /// Returns the origin as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the host, with its port if that is not the scheme's own.
    pub fn host(&self) -> &str {
        self.0.split_once("://").map_or("", |(_, host)| host)
    }
}

impl TryFrom<String> for WebOrigin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let refused = |why: &str| {
            Err(format!(
                "`{text}` is no origin of a web page: {why}, such as https://app.example.com"
            ))
        };
        let lower = text.to_ascii_lowercase();
        let (own_port, host) = match lower.split_once("://") {
            Some(("https", host)) => (":443", host),
            Some(("http", host)) => (":80", host),
            _ => return refused("write http:// or https:// and the host"),
        };
        let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b".-:[]_".contains(&c);
        if host.is_empty() || !host.bytes().all(is_allowed) {
            return refused(
                "after the scheme it has a host and maybe a port, without a path or `*`",
            );
        }
        if host.ends_with(own_port) {
            return refused("browsers leave the scheme's own port out; write it without");
        }
        Ok(Self(lower))
    }
}

impl From<WebOrigin> for String {
    fn from(origin: WebOrigin) -> Self {
        origin.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for (text, origin, host) in [
            ("https://app.example.com", "https://app.example.com", "app.example.com"),
            ("HTTP://LocalHost:3000", "http://localhost:3000", "localhost:3000"),
            ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
        ] {
            let parsed = WebOrigin::try_from(text.to_owned()).unwrap();
            assert_eq!((parsed.as_str(), parsed.host()), (origin, host));
        }
        for text in [
            "",
            "*",
            "null",
            "app.example.com",
            "https://",
            "https://*.example.com",
            "https://app.example.com/",
            "https://app.example.com:443",
            "http://app.example.com:80",
            "https://user@host",
        ] {
            let error = WebOrigin::try_from(text.to_owned()).unwrap_err();
            assert!(error.contains("such as https://app.example.com"), "{error}");
        }
    }
}
