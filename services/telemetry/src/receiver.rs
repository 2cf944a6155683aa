//! The connection to an OTLP receiver: endpoint, TLS and headers.

use percent_encoding::percent_decode_str;
use tonic::metadata::{Ascii, KeyAndValueRef, MetadataKey, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{ClientTlsConfig, Uri};
use tonic::{Request, Status};

/// The environment variable in which OpenTelemetry's SDKs look for the receiver's endpoint.
pub const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The environment variables for the headers of metrics, such as a token. The first that is set is used; the second
/// is for metrics and traces.
const HEADER_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// The environment variable for the headers of traces. OpenTelemetry's exporter reads it; here it is only validated.
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";

/// Returns the value of an environment variable, or `None` if it is unset or empty. OpenTelemetry treats empty
/// variables as unset.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

/// Returns whether `text` is an HTTP or HTTPS URI with a host.
pub fn is_endpoint(text: &str) -> bool {
    let has_scheme = text.starts_with("http://") || text.starts_with("https://");
    has_scheme && text.parse::<Uri>().is_ok_and(|uri| uri.host().is_some())
}

/// Returns the TLS settings for an HTTPS endpoint, with the system's certificate authorities. `None` for plain HTTP.
pub fn tls(endpoint: &str) -> Option<ClientTlsConfig> {
    endpoint.starts_with("https://").then(|| ClientTlsConfig::new().with_enabled_roots())
}

/// The headers of each request that sends metrics.
#[derive(Clone, Debug, Default)]
pub struct Headers(MetadataMap);

impl Headers {
    /// Parses the headers from the environment, which `variable` looks up.
    ///
    /// # Errors
    /// The name of the variable if its value is invalid.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let found = HEADER_VARIABLES.iter().find_map(|&name| Some((name, variable(name)?)));
        let Some((name, text)) = found else { return Ok(Self::default()) };
        Self::parse(&text).ok_or(name)
    }

    /// Returns the name of an invalid variable among those for headers of metrics or traces.
    pub fn fault(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
        let is_bad = |name: &&str| variable(name).is_some_and(|text| Self::parse(&text).is_none());
        HEADER_VARIABLES.into_iter().chain([TRACES_HEADERS]).find(is_bad)
    }

    /// Parses `key=value,key=value` with percent-encoded values, which is the format of the OTLP exporter
    /// specification.
    fn parse(text: &str) -> Option<Self> {
        let mut headers = MetadataMap::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair.split_once('=')?;
            let key: MetadataKey<Ascii> = key.trim().to_ascii_lowercase().parse().ok()?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            let mut value: MetadataValue<Ascii> = value.parse().ok()?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Some(Self(headers))
    }
}

impl Interceptor for Headers {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        // Add the headers one by one: replacing the whole map would remove gRPC's own headers.
        for header in self.0.iter() {
            if let KeyAndValueRef::Ascii(key, value) = header {
                request.metadata_mut().insert(key.clone(), value.clone());
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_pairs_of_keys_and_encoded_values() {
        let mut headers = Headers::parse("Authorization=Basic%20eDp5, x-team = a=b,").unwrap();
        let mut request = Request::new(());
        request.metadata_mut().insert("te", "trailers".parse().unwrap());
        let request = headers.call(request).unwrap();
        let header = |key: &str| request.metadata().get(key).unwrap().to_str().unwrap();
        assert_eq!(header("authorization"), "Basic eDp5");
        assert_eq!(header("x-team"), "a=b");
        assert_eq!(header("te"), "trailers");
        assert_eq!(request.metadata().len(), 3);
        for bad in ["secret", "a b=c", "=c", "a=%00", "a=%ff"] {
            assert!(Headers::parse(bad).is_none(), "{bad}");
        }
    }
}
