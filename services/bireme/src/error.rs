//! The error of a command, as the user sees it: one line, and with `--json` one object.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use access::AccessError;
use address::SECTOR_BYTES;
use client::{NetworkError, TlsError};
use io_node::{NodeError, too_little};
use lake::LakeError;
use peers::SecretError;
use query_node::QueryError;
use ring::SlabError;
use serde_json::json;
use telemetry::TelemetryError;
use wire::{Fault, Reason};

use crate::escape;
use crate::exit::Exit;
use crate::machine;
use crate::quantity;

/// The result of a command.
pub type Result<T> = std::result::Result<T, CliError>;

/// The error of a command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliError {
    exit: Exit,
    reason: &'static str,
    message: String,
    metadata: BTreeMap<String, String>,
}

impl CliError {
    fn new(exit: Exit, reason: &'static str, message: impl Into<String>) -> Self {
        Self { exit, reason, message: one_line(&message.into()), metadata: BTreeMap::new() }
    }

    /// Returns the error for a bad argument or setting.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, Reason::BadArgument.as_str(), message)
    }

    /// Returns the `CliError` for an error of the operating system. `doing` says what failed; `mend`, if not empty,
    /// says what to do.
    pub fn os(doing: &str, error: &io::Error, mend: &str) -> Self {
        let (exit, reason) = exit_and_reason(error.kind());
        let mend = if mend.is_empty() { String::new() } else { format!("; {mend}") };
        Self::new(exit, reason, format!("{doing}: {error}{mend}"))
    }

    /// Returns the error for an address that can't be listened on; `flag` chooses another one.
    pub fn listen(address: &str, source: &io::Error, flag: &str) -> Self {
        let message = format!("can't listen on {address}: {source}; choose another with {flag}");
        let (exit, reason) = match source.kind() {
            // This machine has no such address.
            io::ErrorKind::AddrNotAvailable => (Exit::Usage, Reason::BadArgument.as_str()),
            io::ErrorKind::PermissionDenied => (Exit::Refused, "PERMISSION_DENIED"),
            io::ErrorKind::AddrInUse => (Exit::Refused, "ADDRESS_IN_USE"),
            _ => (Exit::Refused, "ADDRESS_UNUSABLE"),
        };
        Self::new(exit, reason, message)
    }

    /// Returns the error for a folder that can't be used, or for an output file that can't be written.
    pub fn folder(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, "FOLDER_UNUSABLE", message)
    }

    /// Returns the error for a disk without enough free space.
    pub fn disk_full(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, "DISK_FULL", message)
    }

    /// Returns the error for a drive that does not return what was written to it.
    pub fn damaged(message: impl Into<String>) -> Self {
        Self::new(Exit::Other, "DRIVE_DAMAGED", message)
    }

    /// Returns the error of a command that `signal` has ended.
    pub fn stopped(signal: &str, exit: Exit) -> Self {
        Self::new(exit, "INTERRUPTED", format!("stopped by {signal}"))
    }

    /// Returns the error for output that can't be written. A closed pipe does not count as a failure.
    pub fn output(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::new(Exit::OutputClosed, "OUTPUT_CLOSED", ""),
            _ => Self::os("the output can't be written", error, ""),
        }
    }

    /// Returns how the process ends.
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Returns the name of the kind of error, in capitals.
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// Returns the one line that says what is wrong and how to fix it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Appends `hint`, which says what else can be done.
    pub fn hint(mut self, hint: &str) -> Self {
        self.message.push_str("; ");
        self.message.push_str(hint);
        self
    }

    /// Returns the error as the object that `--json` prints.
    pub fn to_json(&self) -> serde_json::Value {
        json!({"error": {
            "reason": self.reason,
            "message": self.message,
            "metadata": self.metadata,
            "exit": self.exit.number(),
        }})
    }
}

/// Returns the exit code and the reason for an error of the operating system.
fn exit_and_reason(kind: io::ErrorKind) -> (Exit, &'static str) {
    match kind {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (Exit::Refused, "PERMISSION_DENIED")
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            (Exit::Refused, "DISK_FULL")
        }
        io::ErrorKind::NotFound => (Exit::NotFound, "FILE_NOT_FOUND"),
        io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::InvalidData
        | io::ErrorKind::InvalidFilename => (Exit::Usage, Reason::BadArgument.as_str()),
        _ => (Exit::Other, "OS"),
    }
}

/// Returns the error for a file of the configuration that can't be used.
fn file(message: String, kind: io::ErrorKind) -> CliError {
    let (exit, reason) = exit_and_reason(kind);
    CliError::new(exit, reason, message)
}

/// Returns `text` as one line, without the errnos that the standard library appends to the system's messages.
fn one_line(text: &str) -> String {
    let lines = text.split(['\n', '\r']).map(str::trim).filter(|line| !line.is_empty());
    let line = lines.collect::<Vec<_>>().join(" ");
    let mut parts = line.split(" (os error ");
    let mut message = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        message.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    // The text may come from a server, with escape sequences for the terminal.
    escape::one_line(&message).into_owned()
}

impl From<Fault> for CliError {
    fn from(fault: Fault) -> Self {
        let Fault { reason, message, metadata } = fault;
        Self { metadata, ..Self::new(Exit::for_reason(reason), reason.as_str(), message) }
    }
}

impl From<LakeError> for CliError {
    fn from(error: LakeError) -> Self {
        let base = Self::from(lake::fault_of(&error));
        match error {
            LakeError::Interrupted { .. } => {
                Self { exit: Exit::Interrupted, reason: "INTERRUPTED", ..base }
            }
            LakeError::StoreFull { .. } => Self { reason: "DISK_FULL", ..base },
            LakeError::KeyNotRecorded { .. } => Self { reason: "KEY_NOT_RECORDED", ..base },
            LakeError::SecretOption { kind, .. } => {
                let (exit, reason) = exit_and_reason(kind);
                Self { exit, reason, ..base }
            }
            _ => base,
        }
    }
}

impl From<QueryError> for CliError {
    fn from(error: QueryError) -> Self {
        match error {
            QueryError::Config { .. } => Self::usage(error.to_string()),
            QueryError::Members { error: ref why, .. } => match why.file_error_kind() {
                Some(kind) => file(error.to_string(), kind),
                None => Self::usage(error.to_string()),
            },
            QueryError::Access(ref why) => match why {
                AccessError::Unreadable { source, .. } => file(error.to_string(), source.kind()),
                AccessError::Syntax { .. } | AccessError::Invalid { .. } => {
                    Self::usage(error.to_string())
                }
            },
            QueryError::Audit { ref source, .. } => file(error.to_string(), source.kind()),
            QueryError::Telemetry(error) => error.into(),
            QueryError::Tls { error: ref why, .. } => tls(error.to_string(), why),
            QueryError::Secret(ref why) => secret(error.to_string(), why),
            QueryError::Listen { address, source } => Self::listen(&address, &source, "--listen"),
            other => Fault::from(other).into(),
        }
    }
}

impl From<NodeError> for CliError {
    fn from(error: NodeError) -> Self {
        let message = error.to_string();
        match error {
            NodeError::Table(fault) => fault.into(),
            NodeError::Config { .. } | NodeError::ColumnTwice { .. } => Self::usage(message),
            NodeError::Listen { address, source } => Self::listen(&address, &source, "--listen"),
            NodeError::Telemetry(error) => error.into(),
            NodeError::Tls(error) => tls(message, &error),
            NodeError::Secret(error) => secret(message, &error),
            NodeError::Audit { source, .. } => file(message, source.kind()),
            NodeError::Slab(error) => slab(message, &error),
            NodeError::Ring { .. } => {
                Self::new(Exit::Other, "RING", message).hint("--engine pread does without io_uring")
            }
            NodeError::NotOurs { .. } => Self::new(Exit::Refused, "DRIVE_NOT_EMPTY", message),
            NodeError::NoSlab { .. } => Self::new(Exit::NotFound, "NO_SLAB", message),
            NodeError::BatchTooLarge { .. }
            | NodeError::ChunkTooLarge { .. }
            | NodeError::NoFile => Self::usage(message),
            NodeError::NotServed => Self::new(Exit::Refused, "TABLE_NOT_SERVED", message),
            NodeError::AnotherTable { .. } => {
                Self::new(Exit::NotFound, "VERSION_NOT_FOUND", message)
            }
            NodeError::Pack(_)
            | NodeError::Fill { .. }
            | NodeError::Predicate(_)
            | NodeError::Os { .. } => Self::new(Exit::Other, "OS", message),
        }
    }
}

impl From<NetworkError> for CliError {
    fn from(error: NetworkError) -> Self {
        let base = match &error {
            NetworkError::Contradiction { .. } => Self::usage(error.to_string()),
            NetworkError::Tls { source, .. } => tls(error.to_string(), source),
        };
        Self { metadata: Fault::from(error).metadata, ..base }
    }
}

impl From<SecretError> for CliError {
    fn from(error: SecretError) -> Self {
        secret(error.to_string(), &error)
    }
}

impl From<TelemetryError> for CliError {
    fn from(error: TelemetryError) -> Self {
        match error {
            TelemetryError::Listen { setting, address, source } => {
                Self::listen(&address.to_string(), &source, setting)
            }
            TelemetryError::Otlp { .. } | TelemetryError::Headers { .. } => {
                Self::usage(error.to_string())
            }
        }
    }
}

/// Maps an error of TLS. A file that can't be read is reported like any other file.
fn tls(message: String, error: &TlsError) -> CliError {
    match error {
        TlsError::Unreadable { source, .. } => file(message, source.kind()),
        TlsError::File { .. } | TlsError::Certificates(_) => CliError::usage(message),
    }
}

/// Maps an error of the secret's file.
fn secret(message: String, error: &SecretError) -> CliError {
    match error {
        SecretError::Unreadable { source, .. } => file(message, source.kind()),
        SecretError::Unusable { .. } => CliError::usage(message),
    }
}

fn slab(message: String, error: &SlabError) -> CliError {
    let refused = |reason| CliError::new(Exit::Refused, reason, message.as_str());
    match error {
        SlabError::PermissionDenied { .. } | SlabError::ReadOnlyFilesystem { .. } => {
            refused("PERMISSION_DENIED")
        }
        SlabError::NoDirect { .. } => {
            refused("NO_DIRECT_IO").hint("or read it through the page cache with --allow-buffered")
        }
        SlabError::NoSpace { path, bytes } => CliError::disk_full(no_space(path, *bytes)),
        SlabError::InUse { .. } => refused("DRIVE_IN_USE"),
        SlabError::Io { .. } => refused("DRIVE_UNUSABLE"),
        SlabError::NotFound { .. } => CliError::new(Exit::NotFound, "FILE_NOT_FOUND", message),
        SlabError::TooSmall { path, actual_bytes, bytes } => {
            CliError::usage(too_small(path, *actual_bytes, *bytes))
        }
        SlabError::BadSize { .. } | SlabError::WrongType { .. } => CliError::usage(message),
    }
}

fn too_small(path: &Path, there: u64, wanted: u64) -> String {
    let path = path.display();
    match wanted == SECTOR_BYTES as u64 {
        // No size was given, so the drive's own size was used, which is less than a sector.
        true => {
            let is = if there == 0 { "empty" } else { "too small" };
            format!("{path} is {is}; name its size, or another drive")
        }
        false => {
            let too_little = too_little(there, wanted);
            format!("{path} has {too_little}; name a smaller size, or another drive")
        }
    }
}

fn no_space(path: &Path, bytes: u64) -> String {
    let free = path.parent().and_then(|folder| machine::free_bytes(folder).ok());
    let free = free.map_or(String::new(), |free| format!(", {} are free", quantity::bytes(free)));
    let path = path.display();
    format!("{path}: no room for {}{free}; free some, or make it smaller", quantity::bytes(bytes))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn errors_are_one_line_with_a_documented_code() {
        let error =
            CliError::from(Fault::new(Reason::TableNotFound, "no table\n  `x`").with("table", "x"));
        assert_eq!(error.exit(), Exit::NotFound);
        assert_eq!(
            error.to_json(),
            json!({"error": {
                "reason": "TABLE_NOT_FOUND",
                "message": "no table `x`",
                "metadata": {"table": "x"},
                "exit": 3,
            }})
        );
    }

    #[test]
    fn errors_of_the_system_say_what_to_do() {
        let denied = io::Error::from_raw_os_error(13);
        let error = CliError::os("the cache folder /x can't be created", &denied, "name another");
        assert_eq!(error.exit(), Exit::Refused);
        assert_eq!(
            error.message(),
            "the cache folder /x can't be created: Permission denied; name another"
        );
        let source = io::Error::from_raw_os_error(98);
        let error = CliError::from(NodeError::Listen { address: "1.2.3.4:5".into(), source });
        assert_eq!(error.exit(), Exit::Refused);
        assert_eq!(
            error.message(),
            "can't listen on 1.2.3.4:5: Address already in use; choose another with --listen"
        );
        for (errno, exit) in [(20, Exit::Usage), (21, Exit::Usage), (28, Exit::Refused)] {
            let error = CliError::os("x", &io::Error::from_raw_os_error(errno), "");
            assert_eq!(error.exit(), exit, "errno {errno}");
        }
        let full = SlabError::NoSpace { path: "/tmp/slab".into(), bytes: 1 << 50 };
        let error = CliError::from(NodeError::Slab(full));
        assert_eq!(error.exit(), Exit::Refused);
        assert!(error.message().starts_with("/tmp/slab: no room for 1.0 PiB, "), "{error:?}");
        for (actual_bytes, bytes, said) in [
            (
                1 << 20,
                64 << 20,
                "has 1.0 MiB, less than 64.0 MiB; name a smaller size, or another drive",
            ),
            (
                1 << 40,
                (1 << 40) + 4096,
                "has 1099511627776 bytes, less than 1099511631872; name a smaller size, or another drive",
            ),
            (0, 4096, "is empty; name its size, or another drive"),
            (4095, 4096, "is too small; name its size, or another drive"),
        ] {
            let small = SlabError::TooSmall { path: "/x".into(), actual_bytes, bytes };
            let error = CliError::from(NodeError::Slab(small));
            assert_eq!(error.exit(), Exit::Usage);
            assert_eq!(error.message(), format!("/x {said}"));
        }
        let endpoint = "https://io-0:7071".into();
        let error = NetworkError::Contradiction { endpoint, problem: "no".into() };
        let json = CliError::from(error).to_json();
        assert_eq!(json["error"]["metadata"]["endpoint"], "https://io-0:7071");
        let error = CliError::from(NodeError::Config { field: "fills", problem: "is 0".into() });
        assert_eq!(error.exit(), Exit::Usage);
        let path = PathBuf::from("/policy.toml");
        let missing = io::ErrorKind::NotFound.into();
        let missing = AccessError::Unreadable { path: path.clone(), source: missing };
        assert_eq!(CliError::from(QueryError::Access(missing)).exit(), Exit::NotFound);
        let wrong = AccessError::Syntax { path, problem: "line 1".into() };
        assert_eq!(CliError::from(QueryError::Access(wrong)).exit(), Exit::Usage);
        let uri = || "t".to_owned();
        let why = String::new;
        let interrupted = CliError::from(LakeError::Interrupted { uri: uri() });
        assert_eq!((interrupted.exit().number(), interrupted.reason), (130, "INTERRUPTED"));
        let full = CliError::from(LakeError::StoreFull { uri: uri(), why: why() });
        assert_eq!((full.exit().number(), full.reason), (6, "DISK_FULL"));
        let unrecorded = CliError::from(LakeError::KeyNotRecorded {
            uri: uri(),
            committed: "the rows are",
            version: 2,
            column: uri(),
            why: why(),
        });
        // Not the exit code of a conflict: the command must not be run again.
        assert_eq!((unrecorded.exit().number(), unrecorded.reason), (1, "KEY_NOT_RECORDED"));
        let column = LakeError::UnsupportedType { column: uri(), data_type: why(), why: why() };
        assert_eq!(CliError::from(column).exit(), Exit::Usage);
        assert_eq!(CliError::output(&io::ErrorKind::BrokenPipe.into()).exit(), Exit::OutputClosed);
    }
}
