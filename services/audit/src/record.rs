//! A line of the audit log.

use std::net::SocketAddr;
use std::time::SystemTime;

use serde::{Serialize, Serializer};

/// Whether a request was allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The policy allows it. It may have failed for another reason.
    Allowed,
    /// The caller is unknown, the policy does not allow the request, or a limit of its grant is reached.
    Denied,
}

/// A line of the audit log. Fields that are `None` are left out.
#[derive(Clone, Debug, Serialize)]
pub struct Record<'a> {
    /// The time at which the request ended, written as RFC 3339 with milliseconds, in UTC.
    #[serde(serialize_with = "rfc3339")]
    pub time: SystemTime,
    /// The node that answered.
    pub node: &'a str,
    /// The caller, in the form that grants use. `None` if the caller is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caller: Option<&'a str>,
    /// The address that the connection comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// The rpc, such as `bireme.query.v1.QueryService/Get`.
    pub rpc: &'a str,
    /// The table's name; on an I/O node its label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<&'a str>,
    /// The branch of the table; left out for the main one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<&'a str>,
    /// The version of the table, or of its branch, that was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// The grant under which the request ran, or whose limit was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<&'a str>,
    /// Whether the request was allowed.
    pub verdict: Verdict,
    /// The gRPC code of the answer, such as `OK` or `NOT_FOUND`. `CANCELLED` if the caller did not wait for it.
    pub code: &'a str,
    /// The reason why the request was denied or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'a str>,
    /// The number of rows in the answer.
    pub rows: u64,
    /// The size of the rows in the answer, in bytes.
    pub bytes: u64,
    /// The duration, in microseconds.
    pub duration_us: u64,
}

/// Returns the line of a record, without the line break at its end.
pub fn line(record: &impl Serialize) -> String {
    // Serialising strings and numbers can't fail.
    serde_json::to_string(record).unwrap_or_default()
}

/// Writes a time as RFC 3339 with milliseconds, in UTC.
pub fn rfc3339<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_rfc3339_millis(*time))
}

/// The maximum length of the name of a table or a branch in a line, in bytes. No such name is longer. Without it, a
/// caller could write lines of any length, because names that do not exist are logged too.
const NAME_BYTES_MAX: usize = 256;

/// Returns the part of a name that a line has.
pub fn cut_name(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_only_what_is_known() {
        let record = Record {
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(1_790_000_000_123),
            node: "query-0",
            caller: Some("key:ci"),
            peer: "10.0.0.7:4711".parse().ok(),
            rpc: "bireme.query.v1.QueryService/Get",
            table: Some("a \"quoted\"\nname"),
            branch: Some("exp"),
            version: Some(7),
            grant: None,
            verdict: Verdict::Allowed,
            code: "OK",
            reason: None,
            rows: 3,
            bytes: 1024,
            duration_us: 250,
        };
        let line = "{\"time\":\"2026-09-21T14:13:20.123Z\",\"node\":\"query-0\",\"caller\":\"key:ci\",\
                    \"peer\":\"10.0.0.7:4711\",\"rpc\":\"bireme.query.v1.QueryService/Get\",\
                    \"table\":\"a \\\"quoted\\\"\\nname\",\"branch\":\"exp\",\"version\":7,\"verdict\":\"allowed\",\"code\":\"OK\",\
                    \"rows\":3,\"bytes\":1024,\"duration_us\":250}";
        assert_eq!(super::line(&record), line);
    }
}
