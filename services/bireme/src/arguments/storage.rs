//! How object stores are reached.

use std::collections::HashMap;

use clap::Args;

/// Options of the object stores.
#[derive(Clone, Debug, Default, Args)]
pub struct StorageArgs {
    /// An option of the object store, such as aws_endpoint=http://127.0.0.1:9000 (repeatable;
    /// AWS_*, GOOGLE_* and AZURE_* of the environment are used as well)
    #[arg(long = "storage", value_name = "NAME=VALUE", value_parser = parse_option, help_heading = "Object store")]
    options: Vec<(String, String)>,
}

impl StorageArgs {
    /// Over those that are there.
    pub fn apply(&self, storage: &mut HashMap<String, String>) {
        storage.extend(self.options.iter().cloned());
    }

    /// On their own.
    pub fn to_map(&self) -> HashMap<String, String> {
        self.options.iter().cloned().collect()
    }
}

fn parse_option(text: &str) -> Result<(String, String), String> {
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
        let options = vec![("a".to_owned(), "1".to_owned()), ("a".to_owned(), "2".to_owned())];
        let mut storage = HashMap::from([("a".to_owned(), "0".to_owned())]);
        StorageArgs { options }.apply(&mut storage);
        assert_eq!(storage["a"], "2");
    }
}
