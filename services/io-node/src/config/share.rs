//! The configuration of shares: guarantees and quotas of tables on a node's drives.

use address::{SECTOR_BYTES, TableTag};
use bytesize::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IoConfig;
use super::serve::table_uri;
use crate::error::NodeError;
use crate::table::{label, table_tag};
use tables::TableUri;

/// A table's share of the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The number of the table's sectors that other tables' fills do not evict.
    pub guarantee: u64,
    /// The maximum number of sectors that the table may have; at least the length of a segment.
    pub quota: u64,
    /// Whether the table's extents are never evicted. Its guarantee then equals its quota.
    pub is_pinned: bool,
}

/// One table's share of the drives, over all its versions.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShareConfig {
    /// The table.
    pub uri: String,
    /// Guarantee: once this many bytes of the table are on the drives, fills of other tables do not evict them.
    #[serde(default)]
    #[schemars(with = "String", extend("format" = "size"))]
    pub minimum: ByteSize,
    /// Quota: the maximum bytes of the table on the drives.
    #[serde(default)]
    #[schemars(with = "Option<String>", extend("format" = "size"))]
    pub maximum: Option<ByteSize>,
    /// Whether the table is never evicted. It needs a `maximum`, beyond which it is not filled.
    #[serde(default)]
    pub pinned: bool,
}

impl ShareConfig {
    /// Returns the table's label, which anyone may read; empty if the URI names no table.
    pub fn label(&self) -> String {
        TableUri::of_config(&self.uri).map_or_else(|_| String::new(), |uri| label(&uri))
    }

    /// Returns the table's tag and its share.
    ///
    /// # Errors
    /// [`NodeError::Config`] if the URI names no table, values are missing or contradict each other, or `maximum` is
    /// less than `segment`.
    pub fn share(&self, segment: ByteSize) -> Result<(TableTag, Share), NodeError> {
        let bad = |what: String| {
            let problem = format!("of {}: {what}", self.uri);
            Err(NodeError::Config { field: "shares", problem })
        };
        let uri = table_uri("shares", &self.uri)?;
        let minimum = match (self.pinned, self.maximum, self.minimum.as_u64()) {
            (true, Some(maximum), 0) => maximum,
            (true, None, _) => {
                return bad("what is pinned needs a `maximum`, so that it is known to fit".into());
            }
            (true, Some(_), _) => {
                return bad("what is pinned needs no `minimum`: leave it out".into());
            }
            (false, None, 0) => return bad("give a `minimum`, a `maximum`, or both".into()),
            (false, ..) => self.minimum,
        };
        if let Some(maximum) = self.maximum {
            if maximum < minimum {
                return bad(format!("`maximum` {maximum} is below `minimum` {minimum}"));
            }
            if maximum < segment {
                return bad(format!("`maximum` {maximum} is below a `segment`, {segment}"));
            }
        }
        let sectors = |bytes: ByteSize| bytes.as_u64() / SECTOR_BYTES as u64;
        let quota = self.maximum.map_or(u64::MAX, sectors);
        // A part of a sector would otherwise make the guarantee of a pinned table larger than its quota.
        let guarantee = minimum.as_u64().div_ceil(SECTOR_BYTES as u64).min(quota);
        let share = Share { guarantee, quota, is_pinned: self.pinned };
        Ok((table_tag(&uri), share))
    }
}

/// Returns the shares of all tables that have one.
///
/// # Errors
/// [`NodeError::Config`] for the first share that [`ShareConfig::share`] refuses, or whose table has the tag of an
/// earlier one.
pub fn shares(config: &IoConfig) -> Result<Vec<(TableTag, Share)>, NodeError> {
    let mut shares: Vec<(TableTag, Share)> = Vec::with_capacity(config.shares.len());
    for share in &config.shares {
        let (tag, table_share) = share.share(config.segment)?;
        if shares.iter().any(|(other, _)| *other == tag) {
            let problem = format!("names {} twice", share.uri);
            return Err(NodeError::Config { field: "shares", problem });
        }
        shares.push((tag, table_share));
    }
    Ok(shares)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(toml: &str) -> Result<(TableTag, Share), String> {
        let share: ShareConfig = serde_json::from_str(toml).unwrap();
        share.share(ByteSize::mib(1)).map_err(|error| error.to_string())
    }

    fn refused(json: &str) -> String {
        share(json).unwrap_err()
    }

    #[test]
    fn a_share_is_checked_and_its_table_has_one_tag() {
        let (tag, of) = share(r#"{"uri": "s3://b/t/", "minimum": "2MiB"}"#).unwrap();
        assert_eq!((of.guarantee, of.quota, of.is_pinned), (512, u64::MAX, false));
        assert_eq!(share(r#"{"uri": "s3://b/t", "maximum": "2MiB"}"#).unwrap().0, tag);
        let pinned = r#"{"uri": "s3://b/u", "maximum": "2MiB", "pinned": true}"#;
        let pinned = share(pinned).unwrap();
        assert_eq!(pinned.1, Share { guarantee: 512, quota: 512, is_pinned: true });
        assert_ne!(pinned.0, tag);
        let (_, of) = share(r#"{"uri": "s3://b/t", "minimum": "4097 B"}"#).unwrap();
        assert_eq!(of.guarantee, 2);
        let odd = r#"{"uri": "s3://b/t", "maximum": "2000000 B", "pinned": true}"#;
        assert_eq!(share(odd).unwrap().1, Share { guarantee: 488, quota: 488, is_pinned: true });
        for (json, said) in [
            (r#"{"uri": " ", "minimum": "1GiB"}"#, "empty"),
            (r#"{"uri": "s3://b/t"}"#, "give a `minimum`, a `maximum`, or both"),
            (r#"{"uri": "s3://b/t", "pinned": true}"#, "needs a `maximum`"),
            (
                r#"{"uri": "s3://b/t", "pinned": true, "minimum": "2MiB", "maximum": "2MiB"}"#,
                "needs no `minimum`",
            ),
            (r#"{"uri": "s3://b/t", "minimum": "3MiB", "maximum": "2MiB"}"#, "is below `minimum`"),
            (r#"{"uri": "s3://b/t", "maximum": "2KiB"}"#, "is below a `segment`"),
        ] {
            assert!(refused(json).contains(said), "{json}: {}", refused(json));
        }
    }
}
