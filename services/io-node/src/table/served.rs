//! The tables that a node serves.

use tables::{TableUri, Tables, UriPrefix};

use crate::error::NodeError;

/// The tables of the setting `serve`. No other table is opened, looked up or reported.
#[derive(Clone, Debug, Default)]
pub struct ServedTables {
    /// The prefixes as configured, and with symbolic links resolved.
    prefixes: Vec<UriPrefix>,
    /// Only the prefixes with symbolic links resolved.
    real: Vec<UriPrefix>,
}

impl ServedTables {
    /// Takes the prefixes as configured, without resolving symbolic links.
    pub fn new(serve: &[UriPrefix]) -> Self {
        Self { prefixes: serve.to_vec(), real: serve.to_vec() }
    }

    /// Resolves the symbolic links of the prefixes. A path that cannot be looked up now is used as configured.
    pub async fn resolved(serve: &[UriPrefix], tables: &dyn Tables) -> Self {
        let mut real = Vec::with_capacity(serve.len());
        for prefix in serve {
            real.push(resolved_prefix(prefix, tables).await);
        }
        Self { prefixes: serve.iter().chain(&real).cloned().collect(), real }
    }

    /// Returns the canonical URI of the table that a caller names. No file or store is accessed before the name is
    /// known to be that of a served table. A table whose symbolic links lead outside the prefixes is not served.
    ///
    /// # Errors
    /// [`NodeError::NotServed`]; for a name outside the prefixes, this does not depend on what exists. For a name within
    /// them, also the reason why its path cannot be looked up.
    pub async fn admit(&self, text: &str, tables: &dyn Tables) -> Result<TableUri, NodeError> {
        let named = TableUri::of_wire(text).ok_or(NodeError::NotServed)?;
        if !covers(&self.prefixes, &named) {
            return Err(NodeError::NotServed);
        }
        let real = tables.resolve(&named).await?;
        if covers(&self.real, &real) { Ok(real) } else { Err(NodeError::NotServed) }
    }
}

fn covers(prefixes: &[UriPrefix], uri: &TableUri) -> bool {
    prefixes.iter().any(|prefix| prefix.covers(uri))
}

async fn resolved_prefix(prefix: &UriPrefix, tables: &dyn Tables) -> UriPrefix {
    let (uri, is_below) = match prefix {
        UriPrefix::Table(uri) => (Some(uri.clone()), false),
        // `parse` fails for a whole bucket, which is no table and has no symbolic links.
        UriPrefix::Below(text) => (TableUri::parse(text).ok(), true),
    };
    let Some(uri) = uri else { return prefix.clone() };
    match tables.resolve(&uri).await {
        Ok(real) if is_below => UriPrefix::below(&real),
        Ok(real) => UriPrefix::Table(real),
        Err(error) => {
            tracing::warn!(serve = %prefix, %error, "cannot be looked up; served as configured");
            prefix.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use futures::FutureExt;
    use futures::executor::block_on;
    use futures::future::BoxFuture;
    use tables::{BranchName, FilePath, FileTable, StoreUse, Table};
    use wire::{Fault, Reason};

    use super::*;

    /// Symbolic links: their paths and targets.
    struct Links(HashMap<&'static str, &'static str>);

    impl Tables for Links {
        fn open<'a>(
            &'a self,
            _: &'a TableUri,
            _: Option<&'a BranchName>,
            _: u64,
        ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>> {
            unreachable!("nothing is opened")
        }

        fn open_file<'a>(
            &'a self,
            _: &'a TableUri,
            _: &'a FilePath,
            _: Option<u64>,
        ) -> BoxFuture<'a, Result<FileTable, Fault>> {
            unreachable!("nothing is opened")
        }

        fn latest_version<'a>(&'a self, _: &'a TableUri) -> BoxFuture<'a, Result<u64, Fault>> {
            unreachable!("nothing is opened")
        }

        fn resolve<'a>(&'a self, uri: &'a TableUri) -> BoxFuture<'a, Result<TableUri, Fault>> {
            let real = match self.0.get(uri.as_str()) {
                Some(&"forbidden") => Err(Fault::new(Reason::StoreRefused, "forbidden")),
                Some(real) => Ok(TableUri::parse(real).unwrap()),
                None => Ok(uri.clone()),
            };
            std::future::ready(real).boxed()
        }

        fn store_use(&self) -> StoreUse {
            StoreUse::default()
        }
    }

    #[test]
    fn only_configured_tables_are_admitted_and_all_others_get_the_same_refusal() {
        let links = Links(HashMap::from([
            ("/link", "/real/words"),
            ("/data", "/mnt/data"),
            ("/data/t", "/mnt/data/t"),
            ("/mnt/data/planted", "/etc"),
            ("/etc/forbidden", "forbidden"),
            ("/mnt/data/forbidden", "forbidden"),
        ]));
        let serve = ["/link", "/data/", "s3://bucket/", "s3://other/t"];
        let serve = serve.map(|text| UriPrefix::of_config(text).unwrap());
        let served = block_on(ServedTables::resolved(&serve, &links));
        let admit = |text: &str| block_on(served.admit(text, &links));
        for (text, real) in [
            ("/link", "/real/words"),
            ("/real/words", "/real/words"),
            ("/data/t", "/mnt/data/t"),
            ("/mnt/data/t", "/mnt/data/t"),
            ("s3://bucket/a/t", "s3://bucket/a/t"),
            ("s3://other/t", "s3://other/t"),
        ] {
            assert_eq!(admit(text).unwrap().as_str(), real, "{text}");
        }
        let refused = fault_text(&NodeError::NotServed);
        for text in [
            "",
            "/",
            "/etc",
            "/etc/forbidden",
            "/absent",
            "/data",
            "/data/",
            "/data/../etc",
            "/data//t",
            "/data/./t",
            "/data/t/",
            "file:///data/t",
            "/mnt/data/planted",
            "/real/words/x",
            "/link/x",
            "s3://bucket",
            "s3://bucket/",
            "s3://bucket/../x",
            "s3://other/u",
            "s3://u:p@bucket/t",
            "s3://bucket/t?x",
            "gs://bucket/t",
            "http://h/t",
            "relative",
            "/data/t\n",
        ] {
            assert_eq!(fault_text(&admit(text).unwrap_err()), refused, "{text:?}");
        }
        // Below a served prefix, the error may give the reason.
        let error = admit("/mnt/data/forbidden").unwrap_err();
        assert_ne!(fault_text(&error), refused);
        assert!(
            block_on(ServedTables::default().admit("/data/t", &links)).is_err(),
            "deny by default"
        );
    }

    fn fault_text(error: &NodeError) -> (Reason, String) {
        let fault = crate::error::fault_of(error);
        assert!(fault.metadata.is_empty(), "{fault:?}");
        (fault.reason, fault.message)
    }
}
