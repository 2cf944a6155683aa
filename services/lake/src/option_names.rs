//! The names of object stores' options, as Lance and the stores' clients know them: of one that they don't know they
//! say nothing, and leave it out.

use std::collections::HashMap;

use lance_io::object_store::StorageOptions;
use spelling::nearest;

use crate::error::{LakeError, Result};

/// What Lance reads itself, beside what the stores' clients take.
const OF_LANCE: [&str; 11] = [
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

/// Names that go on as they like: HTTP headers, options of one of a table's places, Lance's throttle.
const BEGINNINGS: [&str; 3] = ["headers.", "base_", "lance_"];

/// What a misspelt name may be meant for, beside those of Lance.
const USUAL: [&str; 37] = [
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

/// Whether every option is one that a store may take, of whichever cloud.
///
/// # Errors
/// [`LakeError::UnknownOption`] for the first that none takes, with the name that it is likely meant for;
/// [`LakeError::UserInEndpoint`] for an endpoint with a user name or password.
pub fn check_storage(options: &HashMap<String, String>) -> Result<()> {
    // A store's client sends nothing of it, and whoever reports a failure may repeat the endpoint.
    let has_user = |(name, value): &(&String, &String)| {
        let host = value.split_once("://").map_or(value.as_str(), |(_, rest)| rest);
        let is_endpoint = name.ends_with("endpoint") || name.ends_with("endpoint_url");
        is_endpoint && host.split('/').next().is_some_and(|host| host.contains('@'))
    };
    if let Some((name, _)) = options.iter().find(has_user) {
        return Err(LakeError::UserInEndpoint { name: name.clone() });
    }
    // OpenDAL has names of its own.
    if options.contains_key("use_opendal") {
        return Ok(());
    }
    let unknown = options.keys().filter(|name| !is_known(name)).min();
    unknown.map_or(Ok(()), |name| {
        let known = USUAL.into_iter().chain(OF_LANCE);
        Err(LakeError::UnknownOption { name: name.clone(), nearest: nearest(name, known) })
    })
}

fn is_known(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    if OF_LANCE.contains(&name.as_str()) || BEGINNINGS.iter().any(|it| name.starts_with(it)) {
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
    fn what_is_suggested_is_known_and_so_is_what_any_store_takes() {
        checked(&USUAL).unwrap();
        checked(&OF_LANCE).unwrap();
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
    fn a_misspelt_name_is_refused_with_the_one_that_is_meant() {
        for (name, meant) in [
            ("aws_acess_key_id", "aws_access_key_id"),
            ("aws_acces_key_id", "aws_access_key_id"),
            ("AWS_ENDPONT", "aws_endpoint"),
            ("aws_regoin", "aws_region"),
            ("alow_http", "allow_http"),
            ("azure_storage_acount_name", "azure_storage_account_name"),
        ] {
            let said = checked(&["aws_region", name]).unwrap_err().to_string();
            assert!(said.contains(name) && said.contains(&format!("mean {meant}")), "{said}");
        }
        let secret = [("aws_endpoint".into(), "http://key:5ecret@minio:9000".into())];
        let said = check_storage(&secret.into()).unwrap_err().to_string();
        assert!(said.contains("`aws_endpoint`") && !said.contains("5ecret"), "{said}");
        check_storage(&[("endpoint".into(), "http://minio:9000/a@b".into())].into()).unwrap();
        let said = checked(&["colour"]).unwrap_err().to_string();
        assert!(said.contains("`colour`") && said.contains("such as aws_endpoint"), "{said}");
        checked(&["colour", "use_opendal"]).unwrap();
    }
}
