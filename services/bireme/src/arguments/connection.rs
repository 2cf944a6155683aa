//! Which query node, and which version of which table.

use std::time::Duration;

use clap::{Args, ValueHint};
use client::Endpoint;
use client::query::QueryClient;

use super::duration::parse_duration;
use crate::error::Result;

/// How long a request may take unless it is said.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Which query node.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// The query node
    #[arg(
        long,
        env = "BIREME_ENDPOINT",
        value_name = "URL",
        value_hint = ValueHint::Url,
        default_value = "http://127.0.0.1:7070",
        help_heading = "Connection"
    )]
    pub endpoint: Endpoint,
    /// How long a request may take, such as 500ms [default: 30s; warm: unlimited]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Connection")]
    pub timeout: Option<Duration>,
}

impl Connection {
    /// Connects, with the time limit on each request.
    pub async fn open(&self) -> Result<QueryClient> {
        Ok(QueryClient::connect(&self.endpoint).await?.with_timeout(self.timeout()))
    }

    /// Connects, without a limit unless one was asked for.
    pub async fn open_unlimited(&self) -> Result<QueryClient> {
        let client = QueryClient::connect(&self.endpoint).await?;
        Ok(match self.timeout {
            Some(timeout) => client.with_timeout(timeout),
            None => client,
        })
    }

    /// The time limit.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }
}

/// Which table.
#[derive(Clone, Debug, Args)]
pub struct TableArgs {
    /// The table's name (see `bireme tables`)
    #[arg(value_name = "TABLE", value_hint = ValueHint::Other)]
    pub table: String,
    /// The table's version; 0 for the latest
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub table_version: u64,
}
