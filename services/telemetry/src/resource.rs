//! The identity of a node in exported telemetry.

use opentelemetry::KeyValue;
use opentelemetry_sdk::Resource;

/// A node's identity, in terms of OpenTelemetry's conventions for services.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The kind of node: `bireme-io` or `bireme-query`.
    pub service: &'static str,
    /// The node's name.
    pub node: String,
    /// Bireme's version.
    pub version: &'static str,
}

impl Identity {
    /// Returns the identity as OpenTelemetry attributes.
    pub fn attributes(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("service.name", self.service.to_owned()),
            ("service.instance.id", self.node.clone()),
            ("service.version", self.version.to_owned()),
        ]
        .into_iter()
    }

    /// Returns the identity as an OpenTelemetry resource, with the attributes of `OTEL_RESOURCE_ATTRIBUTES`.
    pub fn resource(&self) -> Resource {
        let attributes = self.attributes().map(|(key, value)| KeyValue::new(key, value));
        Resource::builder().with_attributes(attributes).build()
    }
}
