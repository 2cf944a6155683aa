//! Checks the names of object stores' options, because Lance and the stores' clients silently ignore unknown names.

use std::collections::HashMap;

use lance_io::object_store::StorageOptions;
use spelling::nearest;

use crate::error::{LakeError, Result};

/// The options that Lance itself reads, in addition to those of the stores' clients.
const LANCE_OPTIONS: [&str; 11] = [
    "aws_provider_scheme",
    "aws_security_token",
    "block_size",
    "client_max_retries",
    "client_retry_timeout",
    "download_retry_count",
    "dynamodb_endpoint",
    "expires_at_millis",
    "google_storage_token",
    "refresh_offset_millis",
    "use_opendal",
];

/// The prefixes after which any name is accepted: for HTTP headers, options of one of a table's base paths, and Lance's
/// throttle.
const PREFIXES: [&str; 3] = ["headers.", "base_", "lance_"];

/// The names that are suggested for a misspelt one, in addition to Lance's.
const COMMON_OPTIONS: [&str; 37] = [
    "access_key_id",
    "allow_http",
    "allow_invalid_certificates",
    "aws_access_key_id",
    "aws_allow_http",
    "aws_bucket",
    "aws_conditional_put",
    "aws_default_region",
    "aws_endpoint",
    "aws_endpoint_url",
    "aws_region",
    "aws_secret_access_key",
    "aws_server_side_encryption",
    "aws_session_token",
    "aws_skip_signature",
    "aws_sse_kms_key_id",
    "aws_unsigned_payload",
    "aws_virtual_hosted_style_request",
    "azure_client_id",
    "azure_client_secret",
    "azure_endpoint",
    "azure_skip_signature",
    "azure_storage_account_key",
    "azure_storage_account_name",
    "azure_storage_sas_token",
    "azure_tenant_id",
    "connect_timeout",
    "endpoint",
    "google_application_credentials",
    "google_service_account",
    "google_service_account_key",
    "google_skip_signature",
    "proxy_url",
    "region",
    "secret_access_key",
    "timeout",
    "user_agent",
];

/// Checks that each option is known to the store of some cloud.
///
/// # Errors
/// [`LakeError::UserInEndpoint`] for an endpoint with a user name or password; [`LakeError::UnknownOption`] for the
/// first unknown name in alphabetical order, with the name that is likely meant.
pub fn check_storage(options: &HashMap<String, String>) -> Result<()> {
    // An endpoint must contain no user name or password: a store's client doesn't send them, and error messages may
    // repeat the endpoint.
    let has_user = |(name, value): &(&String, &String)| {
        let host = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
        let is_endpoint = name.ends_with("endpoint") || name.ends_with("endpoint_url");
        is_endpoint && host.split('/').next().is_some_and(|host| host.contains('@'))
    };
    if let Some((name, _)) = options.iter().find(has_user) {
        return Err(LakeError::UserInEndpoint { name: name.clone() });
    }
    // OpenDAL has its own names.
    if options.contains_key("use_opendal") {
        return Ok(());
    }
    let unknown = options.keys().filter(|name| !is_known(name)).min();
    unknown.map_or(Ok(()), |name| {
        let known = COMMON_OPTIONS.into_iter().chain(LANCE_OPTIONS);
        Err(LakeError::UnknownOption { name: name.clone(), nearest: nearest(name, known) })
    })
}

fn is_known(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if LANCE_OPTIONS.contains(&name.as_str()) || PREFIXES.iter().any(|it| name.starts_with(it)) {
        return true;
    }
    let alone = StorageOptions(HashMap::from([(name, String::new())]));
    !(alone.as_s3_options().is_empty()
        && alone.as_gcs_options().is_empty()
        && alone.as_azure_options().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(names: &[&str]) -> Result<()> {
        check_storage(&names.iter().map(|name| ((*name).into(), "x".into())).collect())
    }

    #[test]
    fn suggested_names_and_names_of_any_store_are_known() {
        checked(&COMMON_OPTIONS).unwrap();
        checked(&LANCE_OPTIONS).unwrap();
        for name in [
            "AWS_REGION",
            "bucket_name",
            "aws_endpoint_url_s3",
            "aws_s3_express",
            "aws_web_identity_token_file",
            "google_base_url",
            "azure_storage_use_emulator",
            "azure_msi_resource_id",
            "http2_only",
            "pool_max_idle_per_host",
            "headers.x-ms-version",
            "base_1.account_key",
            "lance_aimd_max_retries",
        ] {
            checked(&[name]).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn a_misspelt_name_is_refused_with_a_suggestion() {
        for (name, meant) in [
            ("aws_acess_key_id", "aws_access_key_id"),
            ("aws_acces_key_id", "aws_access_key_id"),
            ("AWS_ENDPONT", "aws_endpoint"),
            ("aws_regoin", "aws_region"),
            ("alow_http", "allow_http"),
            ("azure_storage_acount_name", "azure_storage_account_name"),
        ] {
            let message = checked(&["aws_region", name]).unwrap_err().to_string();
            assert!(
                message.contains(name) && message.contains(&format!("mean {meant}")),
                "{message}"
            );
        }
        let secret = [("aws_endpoint".into(), "http://key:5ecret@minio:9000".into())];
        let message = check_storage(&secret.into()).unwrap_err().to_string();
        assert!(message.contains("`aws_endpoint`") && !message.contains("5ecret"), "{message}");
        check_storage(&[("endpoint".into(), "http://minio:9000/a@b".into())].into()).unwrap();
        let message = checked(&["colour"]).unwrap_err().to_string();
        assert!(
            message.contains("`colour`") && message.contains("such as aws_endpoint"),
            "{message}"
        );
        checked(&["colour", "use_opendal"]).unwrap();
    }
}
