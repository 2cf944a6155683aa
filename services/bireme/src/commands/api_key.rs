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
    out.line(format_args!("{key}\n"))?;
    out.line(in_the_policy(name, &sha256))
}

/// Returns the entry of a key in the policy, and the list of a grant for it.
fn in_the_policy(name: &str, sha256: &str) -> String {
    // A string of JSON is one of TOML too. It has one line, as the name of a TOML table must.
    let (quoted, who) = (json!(name), json!(format!("key:{name}")));
    format!(
        "# in the access policy:\n[keys.{quoted}]\nsha256 = [\"{sha256}\"]\n# and in a grant: who = [{who}]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_toml_for_every_name() {
        for name in ["ci", "a.b c", "it's", "a\"b", r"a\b", r#"'a\"b'"#] {
            let lines = in_the_policy(name, "00");
            let policy: toml::Table = toml::from_str(&lines).unwrap();
            assert_eq!(policy["keys"][name]["sha256"][0].as_str(), Some("00"), "{lines}");
            let (_, grant) = lines.split_once("# and in a grant: ").unwrap();
            let grant: toml::Table = toml::from_str(grant).unwrap();
            assert_eq!(grant["who"][0].as_str(), Some(&*format!("key:{name}")), "{lines}");
        }
    }
}
