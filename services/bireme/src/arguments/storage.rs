//! Options of object stores, such as their addresses.

use std::collections::HashMap;
use std::path::Path;

use clap::Args;
use lake::SecretOptions;

use crate::error::Result;

/// Options of the object stores.
#[derive(Clone, Debug, Default, Args)]
pub struct StorageArgs {
    /// An option of the object store, such as aws_endpoint=http://127.0.0.1:9000 (repeatable;
    /// AWS_*, GOOGLE_* and AZURE_* of the environment are used as well)
    #[arg(long = "storage", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Object store")]
    options: Vec<(String, String)>,
}

impl StorageArgs {
    /// Adds the options to `storage`, where they replace options of the same name.
    ///
    /// # Errors
    /// Fails if `storage` then has an option that no object store knows, or an endpoint with a user name.
    pub fn apply(&self, storage: &mut HashMap<String, String>) -> Result<()> {
        storage.extend(self.options.iter().cloned());
        Ok(lake::check_storage(storage)?)
    }

    /// Returns the options as a map.
    ///
    /// # Errors
    /// Fails if one of them is an option that no object store knows, or an endpoint with a user name.
    pub fn to_map(&self) -> Result<HashMap<String, String>> {
        let mut storage = HashMap::new();
        self.apply(&mut storage)?;
        Ok(storage)
    }
}

/// Reads the secret options of the object stores in `folder`, if there is one.
///
/// # Errors
/// Fails if the folder or one of its files can't be used, if no object store knows an option in it, if an option in it
/// is in `storage` too, or for an endpoint with a user name.
pub fn secret_options(
    folder: Option<&Path>,
    storage: &HashMap<String, String>,
) -> Result<Option<SecretOptions>> {
    Ok(folder.map(|folder| SecretOptions::read(folder, storage)).transpose()?)
}

fn parse_option(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_ascii_lowercase(), value.to_owned()))
        }
        _ => Err("write it as NAME=VALUE, such as aws_region=eu-central-1".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_options_win_and_names_are_lower_case() {
        assert_eq!(parse_option("AWS_REGION=a=b"), Ok(("aws_region".into(), "a=b".into())));
        assert_eq!(parse_option("x="), Ok(("x".into(), String::new())));
        assert!(parse_option("x").unwrap_err().contains("NAME=VALUE"));
        assert!(parse_option("=x").is_err());
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let mut storage = HashMap::from([option("region", "0")]);
        let options = vec![option("region", "1"), option("region", "2")];
        StorageArgs { options }.apply(&mut storage).unwrap();
        assert_eq!(storage["region"], "2");
    }

    #[test]
    fn a_misspelt_option_is_refused_from_any_source() {
        let meant = |outcome: Result<()>| {
            let error = outcome.unwrap_err();
            assert_eq!(error.exit().number(), 2);
            assert!(error.message().contains("mean aws_access_key_id"), "{error:?}");
        };
        let misspelt = || ("aws_acess_key_id".to_owned(), "x".to_owned());
        meant(StorageArgs { options: vec![misspelt()] }.to_map().map(drop));
        meant(StorageArgs::default().apply(&mut HashMap::from([misspelt()])));
    }
}
