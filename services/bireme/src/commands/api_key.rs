//! `bireme api-key`: makes an API key, and the lines of the access policy that accept it.

use clap::{Args, ValueHint};
use serde_json::json;

use crate::error::Result;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  bireme api-key ci
  bireme api-key ci --json | jq -r .key > ci.key

The policy holds only the key's SHA-256. The key itself is shown once: give it
to the client, which sends it with --token-file FILE, or as header x-api-key.";

/// The prefix of every key, by which scanners for leaked secrets can recognise one.
const PREFIX: &str = "bireme_";

/// Arguments of `bireme api-key`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ApiKeyArgs {
    /// The name of the key in the policy
    #[arg(value_name = "NAME", value_hint = ValueHint::Other)]
    name: String,
}

/// Prints a new key and its entry in the policy.
pub fn run(args: &ApiKeyArgs, out: &mut Output) -> Result<()> {
    // 256 bits from the thread's generator, which is cryptographic and seeded by the system.
    let random: [u8; 32] = rand::random();
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let key = format!("{PREFIX}{digits}");
    let sha256 = access::digest_of_key(key.as_bytes());
    let name = &args.name;
    if out.json() {
        return out.document(&json!({ "name": name, "key": key, "sha256": sha256 }));
    }
    let quoted = toml::Value::String(name.clone());
    out.line(format_args!("{key}\n"))?;
    out.line(format_args!("# in the access policy:"))?;
    out.line(format_args!("[keys.{quoted}]\nsha256 = [\"{sha256}\"]"))?;
    out.line(format_args!("# and in a grant: who = [\"key:{name}\"]"))
}
