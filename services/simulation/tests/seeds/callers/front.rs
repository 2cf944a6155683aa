//! The parts of a query node that all its callers use: its access control, the tables that it serves, and its clients of
//! the I/O nodes.
//!
//! A query node itself can't run in the simulation: Lance reads and plans on threads of its own, for which a simulated
//! clock does not wait. Access control and the clients are the real ones.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;

use access::{Access, Grant};
use access_model::TABLES;
use address::RowAddr;
use client::fetch::{
    FetchClient, FetchContext, Instant, Priority, Projection, Reply, TableVersion,
};
use tokio::runtime::Runtime;
use wire::Fault;

use super::tables::{VERSIONS, version_of};
use crate::clients::{Around, dial, options};
use crate::dice::Dice;
use crate::node::runtime;
use crate::trace::unix_time;
use crate::truth::Version;

/// The state that callers share.
pub struct Front {
    pub access: Access,
    pub nodes: Vec<FetchClient>,
    /// The current version of each table that is served.
    served: RefCell<BTreeMap<&'static str, u64>>,
    /// Reads the policy's files, which takes real time. The simulated clock stands still meanwhile.
    reader: Runtime,
}

impl Front {
    /// Creates the clients. All tables are served, at their first version. Must be called within the runtime of the
    /// clients.
    pub fn new(dice: &mut Dice, around: &Around, access: Access, reader: Runtime) -> Self {
        let options = options(dice, around);
        let nodes = around.names.iter().map(|name| dial(name, &options)).collect();
        let served = TABLES.into_iter().map(|name| (name, 1)).collect();
        Self { access, nodes, served: RefCell::new(served), reader }
    }

    /// Reads the policy's files again. Must be called outside of any runtime.
    pub fn reload(&self) {
        self.reader.block_on(self.access.reload_if_changed());
    }

    /// Returns whether a table of this name is served.
    pub fn is_served(&self, name: &str) -> bool {
        self.served.borrow().contains_key(name)
    }

    /// Returns the current version of a table, which must be served.
    pub fn current(&self, name: &str) -> &'static Version {
        version_of(name, self.served.borrow()[name])
    }

    /// Publishes a version of a table, or stops or begins to serve it. Returns what it did.
    pub fn change(&self, dice: &mut Dice) -> &'static str {
        let name = *dice.pick(&TABLES);
        let mut served = self.served.borrow_mut();
        match served.get(name).copied() {
            Some(_) if dice.per_mille(200) => {
                served.remove(name);
                "tables dropped"
            }
            // After the last version, the first one is restored.
            version => {
                served.insert(name, version.unwrap_or(0) % VERSIONS + 1);
                "versions published to callers"
            }
        }
    }

    /// Fetches rows from an I/O node, in the flow of `grant`.
    pub async fn fetch(
        &self,
        node: usize,
        version: &Version,
        columns: &[String],
        addrs: Vec<RowAddr>,
        (grant, deadline): (&Grant, Instant),
    ) -> Result<(Projection, Reply), Fault> {
        let (uri, number) = (version.uri, version.version);
        let identity = format!("{uri} {number}");
        let table = TableVersion { uri, branch: "", version: number, identity: &identity };
        let priority = if grant.batch_only() { Priority::Batch } else { Priority::Interactive };
        let context = FetchContext { priority, flow: grant.flow(), ..FetchContext::from(deadline) };
        let client = &self.nodes[node];
        let projection = client.open(table, columns, deadline).await?;
        let reply = client.fetch(&projection, addrs, None, context).await?;
        Ok((projection, reply))
    }
}

/// Reads a policy. Returns it with the runtime that reads it again.
pub fn read_policy(path: &Path) -> (Access, Runtime) {
    let reader = runtime().unwrap();
    let access = reader.block_on(Access::load_at(path, true, unix_time));
    let access = access.expect("the policy is good");
    (access, reader)
}
