//! Which node it is that tells.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

/// A node, by OpenTelemetry's conventions for services.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Its kind: `bireme-io` or `bireme-query`.
    pub service: &'static str,
    /// Its name.
    pub node: String,
    /// Bireme's version.
    pub version: &'static str,
}

impl Identity {
    /// As attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("service.name", self.service.to_owned()),
            ("service.instance.id", self.node.clone()),
            ("service.version", self.version.to_owned()),
        ]
        .into_iter()
    }

    /// With what the environment adds (`OTEL_RESOURCE_ATTRIBUTES`).
    pub fn resource(&self) -> Resource {
        let attributes = self.attributes().map(|(key, value)| KeyValue::new(key, value));
        Resource::builder().with_attributes(attributes).build()
    }
}
