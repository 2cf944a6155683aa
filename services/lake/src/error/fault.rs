//! Converts this crate's errors to their form on the wire, for query nodes and I/O nodes alike.

use wire::{Fault, Reason};

use crate::LakeError;

/// The gRPC form of an error: its reason, its message, and metadata that says what is at fault.
pub fn fault_of(error: &LakeError) -> Fault {
    let fault = Fault::new(reason_of(error), error.to_string());
    match error {
        LakeError::TableNotFound { uri }
        | LakeError::FolderNotFound { uri }
        | LakeError::TableExists { uri }
        | LakeError::KeyColumnUnknown { uri }
        | LakeError::CompositeKey { uri, .. }
        | LakeError::AnotherKey { uri, .. }
        | LakeError::NullKeys { uri, .. }
        | LakeError::StoreUnreachable { uri, .. }
        | LakeError::CredentialsMissing { uri }
        | LakeError::CredentialsRefused { uri, .. }
        | LakeError::NoTextIndex { uri, .. }
        | LakeError::BadUri { uri, .. }
        | LakeError::StoreFull { uri, .. }
        | LakeError::StoreRefuses { uri, .. }
        | LakeError::OutsideTable { uri, .. }
        | LakeError::Conflict { uri, .. }
        | LakeError::Unsupported { uri, .. }
        | LakeError::Corrupt { uri, .. }
        | LakeError::Interrupted { uri }
        | LakeError::Internal { uri, .. } => fault.with("table", uri),
        LakeError::VersionNotFound { uri, version, .. } => {
            fault.with("table", uri).with("version", version)
        }
        LakeError::KeyNotRecorded { uri, version, column, .. } => {
            fault.with("table", uri).with("version", version).with("column", column)
        }
        LakeError::BranchNotFound { uri, branch } => {
            fault.with("table", uri).with("branch", branch)
        }
        LakeError::FragmentNotFound { uri, fragment, .. } => {
            fault.with("table", uri).with("fragment", fragment)
        }
        LakeError::RangeOutOfBounds { fragment: id, .. } => fault.with("fragment", id),
        LakeError::RowNotFound { uri, addresses, .. } => {
            let first = addresses.first().map(ToString::to_string).unwrap_or_default();
            fault.with("table", uri).with("row_addr", first)
        }
        LakeError::ColumnNotFound { column, .. }
        | LakeError::BadKey { column, .. }
        | LakeError::DimensionMismatch { column, .. }
        | LakeError::NotAVector { column, .. }
        | LakeError::NoIndex { column, .. }
        | LakeError::NoPositions { column, .. }
        | LakeError::TooFewRows { column, .. }
        | LakeError::UnsupportedType { column, .. }
        | LakeError::ReservedColumn { column }
        | LakeError::SchemaMismatch { column, .. } => fault.with("column", column),
        LakeError::UnknownOption { name, .. } | LakeError::UserInEndpoint { name } => {
            fault.with("option", name)
        }
        // These errors need no metadata: their message says everything.
        LakeError::BadFilter { .. }
        | LakeError::BadExpression { .. }
        | LakeError::ColumnNotNamed { .. }
        | LakeError::BadQuery { .. }
        | LakeError::BadIndex { .. } => fault,
        LakeError::BadFile { path, .. } | LakeError::SecretOption { path, .. } => {
            fault.with("file", path.display())
        }
    }
}

fn reason_of(error: &LakeError) -> Reason {
    match error {
        LakeError::TableNotFound { .. } | LakeError::FolderNotFound { .. } => Reason::TableNotFound,
        LakeError::VersionNotFound { .. } | LakeError::BranchNotFound { .. } => {
            Reason::VersionNotFound
        }
        LakeError::ColumnNotFound { .. } => Reason::ColumnNotFound,
        LakeError::RowNotFound { .. } | LakeError::FragmentNotFound { .. } => Reason::RowNotFound,
        LakeError::BadFilter { .. } | LakeError::BadExpression { .. } => Reason::BadFilter,
        LakeError::DimensionMismatch { .. } | LakeError::NotAVector { .. } => Reason::BadVector,
        LakeError::NoIndex { .. }
        | LakeError::NoTextIndex { .. }
        | LakeError::NoPositions { .. }
        | LakeError::KeyColumnUnknown { .. } => Reason::NoIndex,
        LakeError::UnsupportedType { .. } | LakeError::Unsupported { .. } => {
            Reason::UnsupportedType
        }
        LakeError::ColumnNotNamed { .. }
        | LakeError::RangeOutOfBounds { .. }
        | LakeError::BadKey { .. }
        | LakeError::AnotherKey { .. }
        | LakeError::CompositeKey { .. }
        | LakeError::NullKeys { .. }
        | LakeError::UnknownOption { .. }
        | LakeError::UserInEndpoint { .. }
        | LakeError::SecretOption { .. }
        | LakeError::BadQuery { .. }
        | LakeError::BadIndex { .. }
        | LakeError::BadUri { .. }
        | LakeError::BadFile { .. }
        | LakeError::ReservedColumn { .. }
        | LakeError::SchemaMismatch { .. }
        | LakeError::TableExists { .. }
        | LakeError::TooFewRows { .. } => Reason::BadArgument,
        LakeError::StoreUnreachable { .. } => Reason::StoreUnreachable,
        LakeError::Conflict { .. } => Reason::Conflict,
        LakeError::CredentialsMissing { .. }
        | LakeError::CredentialsRefused { .. }
        | LakeError::StoreFull { .. }
        | LakeError::StoreRefuses { .. }
        | LakeError::OutsideTable { .. } => Reason::StoreRefused,
        LakeError::Corrupt { .. } => Reason::TableDamaged,
        LakeError::Interrupted { .. } => Reason::Cancelled,
        // Only `ingest` and `build_index` return `KeyNotRecorded`. No other reason fits: the callers' answer to
        // `Conflict` or `StoreUnreachable` is to write again.
        LakeError::KeyNotRecorded { .. } | LakeError::Internal { .. } => Reason::Internal,
    }
}
