//! Turns Lance's and the object stores' errors into [`LakeError`]s.
//!
//! Lance wraps errors in several layers, and its messages have source locations and line breaks. This module walks the
//! chain to the most specific error (an `object_store::Error`, an `io::Error`), and cuts the message to one line
//! without locations. It looks at the text only where Lance itself kept nothing else, and to recognise missing
//! credentials. The texts of this crate's own errors have a [`Mark`], by which they are recognised.

pub(crate) mod caught;

use std::error::Error as StdError;
use std::io::ErrorKind;

use lance::Error as LanceError;
use object_store::Error as StoreError;

use crate::error::LakeError;
use crate::store::{Damaged, ForbiddenPath, Mark, causes, guard_message, unmarked};

/// Lance's messages for a URI whose scheme has no store. A table's own URI was checked before, so the URI at fault is
/// that of a base path or a blob.
const NO_SUCH_SCHEME: [&str; 2] = ["No object store provider found for scheme", "Unknown scheme:"];

/// The name of a store in errors of Lance's reader of small files (lance-io's `SmallReader`), which has one error of its
/// own: a read behind the end of the file.
const SMALL_FILE: &str = "memory";

/// Converts an error of Lance about the table at `uri`.
pub(crate) fn diagnose(uri: &str, error: LanceError) -> LakeError {
    let uri = uri.to_owned();
    if let Some(found) = store_fault(&uri, &error) {
        return found;
    }
    let why = one_line(&error.to_string());
    match error {
        LanceError::DatasetNotFound { .. } => LakeError::TableNotFound { uri },
        LanceError::DatasetAlreadyExists { .. } => LakeError::TableExists { uri },
        LanceError::VersionNotFound { .. } => {
            LakeError::VersionNotFound { uri, version: 0, latest: 0 }
        }
        LanceError::CommitConflict { .. }
        | LanceError::RetryableCommitConflict { .. }
        | LanceError::IncompatibleTransaction { .. }
        | LanceError::TooMuchWriteContention { .. } => LakeError::Conflict { uri, why },
        LanceError::NotSupported { .. } | LanceError::VersionConflict { .. } => {
            LakeError::Unsupported { uri, why }
        }
        LanceError::CorruptFile { .. } | LanceError::NotFound { .. } => {
            LakeError::Corrupt { uri, why }
        }
        LanceError::Timeout { .. } => LakeError::StoreUnreachable { uri, why },
        LanceError::InvalidTableLocation { .. } => LakeError::BadUri { uri, why },
        _ => LakeError::Internal { uri, why },
    }
}

/// Converts an error that Lance returned while it opened the table at `uri`. The only inputs of an open are the URI and
/// the store's options, so an error about bad input concerns these.
pub(crate) fn diagnose_opening(uri: &str, error: LanceError) -> LakeError {
    let bad_input = matches!(error, LanceError::InvalidInput { .. });
    match diagnose(uri, error) {
        LakeError::Internal { uri, why } if bad_input => LakeError::BadUri { uri, why },
        other => other,
    }
}

/// Finds an error of the store, of the fence (`store/fence.rs`) or of the checks of files (`store/checked.rs`), in the
/// error's chain of causes or in its text.
fn store_fault(uri: &str, error: &LanceError) -> Option<LakeError> {
    let text = error.to_string();
    if let Some(why) = damaged(error, &text) {
        return Some(LakeError::Corrupt { uri: uri.to_owned(), why });
    }
    if let Some(why) = outside(error, &text) {
        return Some(LakeError::OutsideTable { uri: uri.to_owned(), why });
    }
    // Missing credentials are recognised before the chain is walked: a machine without credentials is refused by, or
    // can't reach, the service that would issue them, and the chain would report that.
    if credentials_missing(uri, &text) {
        return Some(LakeError::CredentialsMissing { uri: uri.to_owned() });
    }
    let fault_of = |cause: &(dyn StdError + 'static)| {
        if let Some(why) = guard_message(cause) {
            return Some(LakeError::StoreUnreachable { uri: uri.to_owned(), why });
        }
        let of_store = cause.downcast_ref().and_then(|error| object_store_fault(uri, error));
        of_store.or_else(|| cause.downcast_ref().and_then(|error| io_fault(uri, error)))
    };
    causes(error).find_map(fault_of).or_else(|| text_fault(uri, &text))
}

/// Returns the message of a check (`store/checked.rs`) that refused a file before Lance read it.
fn damaged(error: &LanceError, text: &str) -> Option<String> {
    if let Some(damaged) = causes(error).find_map(|cause| cause.downcast_ref::<Damaged>()) {
        return Some(one_line(&damaged.to_string()));
    }
    Mark::Damaged.is_in(text).then(|| one_line(text))
}

fn object_store_fault(uri: &str, error: &StoreError) -> Option<LakeError> {
    let uri = uri.to_owned();
    let why = one_line(&error.to_string());
    match error {
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. }
            if uri.contains("://") =>
        {
            Some(LakeError::CredentialsRefused { uri, why })
        }
        StoreError::PermissionDenied { .. } => Some(LakeError::StoreRefuses { uri, why }),
        StoreError::UnknownConfigurationKey { .. } | StoreError::InvalidPath { .. } => {
            Some(LakeError::BadUri { uri, why })
        }
        StoreError::Generic { store: SMALL_FILE, source } => {
            let why =
                format!("a file is shorter than the table says: {}", one_line(&source.to_string()));
            Some(LakeError::Corrupt { uri, why })
        }
        _ => None,
    }
}

fn io_fault(uri: &str, error: &std::io::Error) -> Option<LakeError> {
    let uri = uri.to_owned();
    let why = one_line(&error.to_string());
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some(LakeError::StoreRefuses { uri, why })
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            Some(LakeError::StoreFull { uri, why })
        }
        ErrorKind::NotADirectory => {
            let why = "a part of the path is a file, not a folder".to_owned();
            Some(LakeError::BadUri { uri, why })
        }
        ErrorKind::ConnectionRefused
        | ErrorKind::ConnectionReset
        | ErrorKind::TimedOut
        | ErrorKind::HostUnreachable
        | ErrorKind::NetworkUnreachable => Some(LakeError::StoreUnreachable { uri, why }),
        _ => None,
    }
}

/// Returns the message about a file that the table names but must not read.
fn outside(error: &LanceError, text: &str) -> Option<String> {
    if let Some(outside) = causes(error).find_map(|cause| cause.downcast_ref::<ForbiddenPath>()) {
        return Some(unmarked(&outside.to_string()));
    }
    if NO_SUCH_SCHEME.iter().any(|phrase| text.contains(phrase)) {
        return Some("the scheme of its URI is not file, s3, gs or az".to_owned());
    }
    Mark::Forbidden.is_in(text).then(|| one_line(text))
}

/// Returns whether the error's text says that the store's client found neither credentials nor a service that issues
/// them.
fn credentials_missing(uri: &str, text: &str) -> bool {
    const MISSING: [&str; 8] = [
        "Failed to get AWS credentials",
        "no providers in chain",
        "CredentialsNotLoaded",
        "the credential provider was not enabled",
        "no storage account configured",
        // Paths, and a host name, of the metadata services of Google's and Azure's virtual machines.
        "/computeMetadata/",
        "/metadata/identity/",
        "metadata.google.internal",
    ];
    uri.contains("://") && MISSING.iter().any(|phrase| text.contains(phrase))
}

/// Recognises errors of which Lance kept only the text: errors of the guard (`store/mod.rs`) by their mark, and errors
/// of the cloud stores and their clients (no region, no bucket, access refused, store unreachable) by their words.
fn text_fault(uri: &str, text: &str) -> Option<LakeError> {
    const UNREACHABLE: [&str; 8] = [
        "error sending request",
        "Connection refused",
        "dns error",
        "error trying to connect",
        "operation timed out",
        "connection closed",
        "HTTP error",
        "Connect(",
    ];
    const REFUSED: [&str; 7] = [
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "AccessDenied",
        "ExpiredToken",
        "403 Forbidden",
        "401 Unauthorized",
        "AuthorizationHeaderMalformed",
    ];
    const NO_BUCKET: [&str; 3] =
        ["NoSuchBucket", "ContainerNotFound", "The specified bucket does not exist"];
    if !uri.contains("://") {
        return None;
    }
    if text.contains("Failed to resolve region") {
        let why = "its region can't be found out; set AWS_REGION or give --storage aws_region=...";
        return Some(LakeError::StoreUnreachable { uri: uri.to_owned(), why: why.to_owned() });
    }
    if NO_BUCKET.iter().any(|phrase| text.contains(phrase)) {
        return Some(LakeError::TableNotFound { uri: uri.to_owned() });
    }
    let (uri, why) = (uri.to_owned(), one_line(text));
    if REFUSED.iter().any(|phrase| text.contains(phrase)) {
        return Some(LakeError::CredentialsRefused { uri, why });
    }
    if Mark::Unanswered.is_in(text) || UNREACHABLE.iter().any(|phrase| text.contains(phrase)) {
        return Some(LakeError::StoreUnreachable { uri, why });
    }
    None
}

/// Puts a message on one line, without marks, and without the `, /path/file.rs:12:34` locations and the prefixes that
/// Lance adds.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = unmarked(text).split_whitespace().collect::<Vec<_>>().join(" ");
    while let Some(at) = line.find(".rs:") {
        let end = line[at + 4..]
            .find(|c: char| !(c.is_ascii_digit() || c == ':'))
            .map_or(line.len(), |n| at + 4 + n);
        let start = line[..at].rfind(", ").or_else(|| line[..at].rfind(' ')).unwrap_or(0);
        line.replace_range(start..end, "");
    }
    for prefix in [
        "Invalid user input: ",
        "LanceError(IO): ",
        "LanceError(Index): ",
        "LanceError(Schema): ",
        "LanceError(Arrow): ",
        "Query Execution error: ",
        "Not supported: ",
        "Encountered internal error. Please file a bug report at https://github.com/lance-format/lance/issues. ",
    ] {
        line = line.replace(prefix, "");
    }
    line.trim_end_matches(", location:").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use object_store::path::Path;

    use super::*;
    use crate::store::{BreakerOpen, Stalled, damaged, generic};

    #[test]
    fn locations_and_line_breaks_are_removed() {
        let text = "LanceError(IO): no\n such file, /home/x/.cargo/registry/src/lance-14.0.2/src/io.rs:12:34";
        assert_eq!(one_line(text), "no such file");
        assert_eq!(one_line("plain"), "plain");
    }

    #[test]
    fn errors_of_the_store_are_recognised() {
        let refused =
            StoreError::PermissionDenied { path: "t/x".into(), source: "403 Forbidden".into() };
        let error = diagnose("s3://b/t", LanceError::from(refused));
        assert!(matches!(error, LakeError::CredentialsRefused { .. }), "{error:?}");
        let io = |kind: ErrorKind| diagnose("/t", LanceError::from(std::io::Error::from(kind)));
        assert!(matches!(io(ErrorKind::StorageFull), LakeError::StoreFull { .. }));
        assert!(matches!(io(ErrorKind::ReadOnlyFilesystem), LakeError::StoreRefuses { .. }));
        assert!(matches!(io(ErrorKind::NotADirectory), LakeError::BadUri { .. }));
        let no_credentials = LanceError::io(
            "Failed to get AWS credentials: ProviderError(.. SdkBody { inner: Once(None) } ..)",
        );
        let error = diagnose("s3://b/t", no_credentials);
        assert!(matches!(error, LakeError::CredentialsMissing { .. }), "{error:?}");
        assert!(!error.to_string().contains("SdkBody"), "{error}");
        let gone = StoreError::NotFound { path: "t/data/x.lance".into(), source: "404".into() };
        let error = diagnose("s3://b/t", LanceError::from(gone));
        assert!(matches!(error, LakeError::Corrupt { .. }), "{error:?}");
    }

    /// Returns the mark of the errors of `store` that become the variant of `error`; `None` for other variants.
    fn kind(error: &LakeError) -> Option<Mark> {
        match error {
            LakeError::Corrupt { .. } => Some(Mark::Damaged),
            LakeError::OutsideTable { .. } => Some(Mark::Forbidden),
            LakeError::StoreUnreachable { .. } => Some(Mark::Unanswered),
            _ => None,
        }
    }

    #[test]
    fn own_errors_are_recognised_even_if_only_their_text_is_left() {
        let (store, waited) = ("s3://b".to_owned(), Duration::from_secs(10));
        let stalled = Stalled { store, path: "t/x".into(), received: 1, expected: 2, waited };
        let damaged = || damaged(&Path::from("t/x"), "its footer is impossible".into());
        let own: [(&str, Mark, &dyn Fn() -> StoreError); 4] = [
            ("t/x is damaged: its footer", Mark::Damaged, &damaged),
            ("also_reads", Mark::Forbidden, &|| ForbiddenPath::outside("s3://c/x").into()),
            ("after 8 failures in a row", Mark::Unanswered, &|| {
                generic(BreakerOpen { failures: 8, probe_in: waited })
            }),
            ("the network to it hangs", Mark::Unanswered, &|| generic(stalled.clone())),
        ];
        for (said, mark, error) in own {
            let kept = LanceError::from(error());
            let shared = LanceError::io(kept.to_string());
            let reported = LanceError::internal(format!("a task failed: {}", error()));
            for error in [kept, shared, reported] {
                let error = diagnose("s3://b/t", error);
                assert_eq!(kind(&error), Some(mark), "{error:?}");
                let text = error.to_string();
                assert!(text.contains(said) && !text.contains("bireme-error"), "{text}");
            }
        }
    }

    #[test]
    fn own_errors_are_recognised_by_their_mark_and_not_by_their_words() {
        for mark in [Mark::Damaged, Mark::Forbidden, Mark::Unanswered] {
            let error = diagnose("s3://b/t", LanceError::io(format!("in a task: {mark}words")));
            assert_eq!(kind(&error), Some(mark), "{error:?}");
            assert!(error.to_string().contains("in a task: words"), "{error}");
        }
        let error = diagnose("s3://b/t", LanceError::io("the index is damaged: see its log"));
        assert_eq!(kind(&error), None, "{error:?}");
    }
}
