//! Which tables a node serves.

use tables::{TableUri, Tables, UriPrefix};

use crate::error::NodeError;

/// The tables of the setting `serve`. Nothing else is opened, looked up or told of.
#[derive(Clone, Debug, Default)]
pub struct ServedTables {
    /// As configured, and without symbolic links.
    prefixes: Vec<UriPrefix>,
    /// Those without symbolic links alone.
    real: Vec<UriPrefix>,
}

impl ServedTables {
    /// What is configured, as it is. Its symbolic links are not resolved.
    pub fn new(serve: &[UriPrefix]) -> Self {
        Self { prefixes: serve.to_vec(), real: serve.to_vec() }
    }

    /// The same with symbolic links resolved. A path that can't be looked up now is taken as it is.
    pub async fn resolved(serve: &[UriPrefix], tables: &dyn Tables) -> Self {
        let mut real = Vec::with_capacity(serve.len());
        for prefix in serve {
            real.push(resolved_prefix(prefix, tables).await);
        }
        Self { prefixes: serve.iter().chain(&real).cloned().collect(), real }
    }

    /// The table that a caller names, as caches and quotas know it. No file or store is touched before the name is
    /// known to be one of a served table, and a table whose path leads elsewhere by a symbolic link is not served.
    ///
    /// # Errors
    /// [`NodeError::NotServed`], the same whatever is there; of a served table also that its path can't be looked up.
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
        // A whole bucket is no table, and has no links.
        UriPrefix::Below(text) => (TableUri::parse(text).ok(), true),
    };
    let Some(uri) = uri else { return prefix.clone() };
    match tables.resolve(&uri).await {
        Ok(real) if is_below => UriPrefix::below(&real),
        Ok(real) => UriPrefix::Table(real),
        Err(error) => {
            tracing::warn!(serve = %prefix, %error, "can't be looked up, and is served as it is written");
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
    use tables::Table;
    use wire::fetch::StoreUse;
    use wire::{Fault, Reason};

    use super::*;

    /// Paths that are links, and where they lead.
    struct Links(HashMap<&'static str, &'static str>);

    impl Tables for Links {
        fn open<'a>(
            &'a self,
            _: &'a TableUri,
            _: u64,
        ) -> BoxFuture<'a, Result<Arc<dyn Table>, Fault>> {
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
    fn only_what_is_configured_is_admitted_and_all_else_is_refused_alike() {
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
        // Below what is served its operator may hear why.
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
