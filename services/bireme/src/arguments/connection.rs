//! Arguments that name the query node and the table.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use client::query::QueryClient;
use client::{ClientTlsConfig, Endpoint, Network};

use super::duration::parse_duration;
use crate::error::{CliError, Result};

/// The time limit of a request if --timeout is not given, for all commands but `tune` and `warm`, which then have none.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// The flags that name the query node and say how to connect to it.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// The query node's endpoint
    #[arg(
        long,
        env = "BIREME_ENDPOINT",
        value_name = "URL",
        value_hint = ValueHint::Url,
        default_value = "http://127.0.0.1:7070",
        help_heading = "Connection"
    )]
    pub endpoint: Endpoint,
    /// The time limit of a request, such as 500ms [default: 30s; warm, tune: unlimited]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Connection")]
    pub timeout: Option<Duration>,
    /// A file with the token or API key to send, for nodes that have an access policy
    #[arg(long, env = "BIREME_TOKEN_FILE", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Connection")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
}

/// The TLS settings for an `https` endpoint.
#[derive(Clone, Debug, Default, Args)]
pub struct TlsArgs {
    /// The authorities (PEM) that vouch for an https endpoint's certificate [default: the system's]
    #[arg(long = "tls-ca", env = "BIREME_TLS_CA", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Connection")]
    ca: Option<PathBuf>,
    /// The client's certificate (PEM), for endpoints that ask for one
    #[arg(long = "tls-cert", env = "BIREME_TLS_CERT", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Connection")]
    cert: Option<PathBuf>,
    /// The private key (PEM) of --tls-cert
    #[arg(long = "tls-key", env = "BIREME_TLS_KEY", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Connection")]
    key: Option<PathBuf>,
    /// The name in the endpoint's certificate [default: the endpoint's host]
    #[arg(long = "tls-name", env = "BIREME_TLS_NAME", value_name = "NAME", value_hint = ValueHint::Hostname, help_heading = "Connection")]
    server_name: Option<String>,
}

impl TlsArgs {
    fn config(&self) -> ClientTlsConfig {
        let Self { ca, cert, key, server_name } = self.clone();
        ClientTlsConfig { ca, cert, key, server_name, crl: None }
    }
}

impl Connection {
    /// Returns the network, with or without TLS, over which to connect to `endpoint`.
    pub fn network(&self, endpoint: &Endpoint) -> Result<Network> {
        Ok(Network::of(endpoint, &self.tls.config())?)
    }

    async fn connect(&self) -> Result<QueryClient> {
        let network = self.network(&self.endpoint)?;
        // Read before connecting, so that a wrong path is reported even if no node answers.
        let token = self.token()?;
        let client = QueryClient::connect_over(&self.endpoint, &network).await?;
        match token {
            Some(token) => Ok(client.with_token(&token)?),
            None => Ok(client),
        }
    }

    /// Reads the token to send. It is not taken from the command line, which other users of the machine can see.
    fn token(&self) -> Result<Option<String>> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let read = std::fs::read_to_string(path);
        let token = read.map_err(|error| {
            let doing = format!("the token file {} can't be read", path.display());
            CliError::os(&doing, &error, "name another with --token-file")
        })?;
        match token.trim() {
            "" => Err(CliError::usage(format!("--token-file {}: it is empty", path.display()))),
            token => Ok(Some(token.to_owned())),
        }
    }

    /// Connects, with the time limit on each request.
    pub async fn open(&self) -> Result<QueryClient> {
        Ok(self.connect().await?.with_timeout(self.timeout()))
    }

    /// Connects, without a time limit unless --timeout sets one.
    pub async fn open_unlimited(&self) -> Result<QueryClient> {
        let client = self.connect().await?;
        Ok(match self.timeout {
            Some(timeout) => client.with_timeout(timeout),
            None => client,
        })
    }

    /// Returns the time limit of a request.
    pub fn timeout(&self) -> Duration {
        self.timeout.unwrap_or(TIMEOUT_DEFAULT)
    }
}

/// A table's name, branch and version.
#[derive(Clone, Debug, Args)]
pub struct TableArgs {
    /// The table's name (see `bireme tables`)
    #[arg(value_name = "TABLE", value_hint = ValueHint::Other)]
    pub table: String,
    /// The table's version; 0 for the latest
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub table_version: u64,
    /// The table's branch, whose versions have numbers of their own [default: the main one]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    #[arg(value_hint = ValueHint::Other)]
    pub table_branch: String,
}
