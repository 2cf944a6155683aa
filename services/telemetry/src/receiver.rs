//! An OTLP receiver: where it is, and how it is spoken to.

use percent_encoding::percent_decode_str;
use tonic::metadata::{Ascii, KeyAndValueRef, MetadataKey, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::transport::{ClientTlsConfig, Uri};
use tonic::{Request, Status};

/// Where OpenTelemetry's SDKs look for it.
pub const ENDPOINT_VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// What it is to be told beside metrics, a token mostly: that of both signals, and what comes before it.
const HEADER_VARIABLES: [&str; 2] =
    ["OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// The same for traces, which OpenTelemetry's own exporter reads.
const TRACES_HEADERS: &str = "OTEL_EXPORTER_OTLP_TRACES_HEADERS";

/// An empty variable is none, for OpenTelemetry.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|it| !it.is_empty())
}

/// Whether a receiver can be asked there.
pub fn is_endpoint(text: &str) -> bool {
    let has_scheme = text.starts_with("http://") || text.starts_with("https://");
    has_scheme && text.parse::<Uri>().is_ok_and(|uri| uri.host().is_some())
}

/// How it is spoken to, unless in the clear. The system's authorities are read for it.
pub fn tls(endpoint: &str) -> Option<ClientTlsConfig> {
    endpoint.starts_with("https://").then(|| ClientTlsConfig::new().with_enabled_roots())
}

/// What goes with each message of metrics.
#[derive(Clone, Debug, Default)]
pub struct Headers(MetadataMap);

impl Headers {
    /// Those of the environment, as `variable` knows it.
    ///
    /// # Errors
    /// The variable that holds something else.
    pub fn of(variable: impl Fn(&str) -> Option<String>) -> Result<Self, &'static str> {
        let found = HEADER_VARIABLES.iter().find_map(|&name| Some((name, variable(name)?)));
        let Some((name, text)) = found else { return Ok(Self::default()) };
        Self::parse(&text).ok_or(name)
    }

    /// The variable that holds something else, of all that either signal's are read from.
    pub fn fault(variable: impl Fn(&str) -> Option<String>) -> Option<&'static str> {
        let is_bad = |name: &&str| variable(name).is_some_and(|text| Self::parse(&text).is_none());
        HEADER_VARIABLES.into_iter().chain([TRACES_HEADERS]).find(is_bad)
    }

    /// Of `key=value,key=value`, values percent-encoded, as the specification of OTLP's exporters has it.
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
        // Beside those of gRPC itself.
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
        let told = |key: &str| request.metadata().get(key).unwrap().to_str().unwrap();
        assert_eq!(told("authorization"), "Basic eDp5");
        assert_eq!(told("x-team"), "a=b");
        assert_eq!(told("te"), "trailers");
        assert_eq!(request.metadata().len(), 3);
        for bad in ["secret", "a b=c", "=c", "a=%00", "a=%ff"] {
            assert!(Headers::parse(bad).is_none(), "{bad}");
        }
    }
}
