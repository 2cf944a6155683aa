//! What a lake's errors are on the wire.

use lake::LakeError;
use wire::{Fault, Reason};

/// The fault that says what `error` says: its sentence, the reason that decides about a retry, and
/// the names at fault.
pub fn fault_of(error: &LakeError) -> Fault {
    let fault = Fault::new(reason_of(error), error.to_string());
    match error {
        LakeError::TableNotFound { uri }
        | LakeError::TableExists { uri }
        | LakeError::KeyColumnUnknown { uri }
        | LakeError::StoreUnreachable { uri, .. }
        | LakeError::CredentialsRefused { uri, .. }
        | LakeError::BadUri { uri, .. }
        | LakeError::StoreRefuses { uri, .. }
        | LakeError::Conflict { uri, .. }
        | LakeError::Unsupported { uri, .. }
        | LakeError::Corrupt { uri, .. }
        | LakeError::Internal { uri, .. } => fault.with("table", uri),
        LakeError::VersionNotFound { uri, version, .. } => {
            fault.with("table", uri).with("version", version)
        }
        LakeError::FragmentNotFound { uri, version, fragment } => {
            fault.with("table", uri).with("version", version).with("fragment", fragment)
        }
        LakeError::RangeOutOfBounds { fragment, .. } => fault.with("fragment", fragment),
        LakeError::RowNotFound { uri, version, addresses } => {
            let fault = fault.with("table", uri).with("version", version);
            match addresses.first() {
                Some(first) => fault.with("row_addr", first),
                None => fault,
            }
        }
        LakeError::ColumnNotFound { column, .. }
        | LakeError::BadKey { column, .. }
        | LakeError::DimensionMismatch { column, .. }
        | LakeError::NotAVector { column, .. }
        | LakeError::NoIndex { column, .. }
        | LakeError::TooFewRows { column, .. }
        | LakeError::UnsupportedType { column, .. }
        | LakeError::SchemaMismatch { column, .. } => fault.with("column", column),
        LakeError::BadFilter { filter, .. } => fault.with("filter", filter),
        LakeError::BadFile { path, .. } => fault.with("file", path.display()),
        LakeError::ColumnNotNamed { .. } | LakeError::BadQuery { .. } => fault,
    }
}

fn reason_of(error: &LakeError) -> Reason {
    match error {
        LakeError::TableNotFound { .. } => Reason::TableNotFound,
        LakeError::VersionNotFound { .. } => Reason::VersionNotFound,
        LakeError::ColumnNotFound { .. } => Reason::ColumnNotFound,
        LakeError::RowNotFound { .. } | LakeError::FragmentNotFound { .. } => Reason::RowNotFound,
        LakeError::DimensionMismatch { .. } => Reason::BadVector,
        LakeError::BadFilter { .. } => Reason::BadFilter,
        LakeError::NoIndex { .. } | LakeError::KeyColumnUnknown { .. } => Reason::NoIndex,
        LakeError::NotAVector { .. }
        | LakeError::UnsupportedType { .. }
        | LakeError::Unsupported { .. } => Reason::UnsupportedType,
        LakeError::TableExists { .. }
        | LakeError::ColumnNotNamed { .. }
        | LakeError::RangeOutOfBounds { .. }
        | LakeError::BadKey { .. }
        | LakeError::BadQuery { .. }
        | LakeError::TooFewRows { .. }
        | LakeError::BadFile { .. }
        | LakeError::SchemaMismatch { .. }
        | LakeError::BadUri { .. } => Reason::BadArgument,
        LakeError::StoreUnreachable { .. } => Reason::StoreUnreachable,
        LakeError::CredentialsRefused { .. } | LakeError::StoreRefuses { .. } => {
            Reason::StoreRefused
        }
        LakeError::Corrupt { .. } => Reason::TableDamaged,
        LakeError::Conflict { .. } | LakeError::Internal { .. } => Reason::Internal,
    }
}
