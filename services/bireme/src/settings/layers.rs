//! Merges the environment over the file. If the result is not valid, each layer is checked on its own, so that the
//! error names the file and line, or the variable.

use std::path::Path;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use spelling::nearest;
use toml::{Table, Value};

use super::mistyped::{in_words, is_mistyped, setting_at};
use super::removed::{Removed, removed};
use super::scalar::{Scalar, scalars};
use crate::arguments::{ADDRESS_EXPECTED, DURATION_EXPECTED, SIZE_EXPECTED};
use crate::error::{CliError, Result};

/// Returns the variables whose names begin with `prefix`, named without it. Leaves out the variable that names the
/// file.
pub fn environment(prefix: &str) -> Vec<(String, String)> {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.to_str()?.strip_prefix(prefix)?.to_owned();
        (name != "CONFIG").then(|| (name, value.to_string_lossy().into_owned()))
    });
    let mut variables: Vec<_> = variables.collect();
    variables.sort();
    variables
}

/// Returns the configuration in `file`, overridden by `variables`, which are named without `prefix`.
pub fn layered<T: DeserializeOwned + JsonSchema + Removed>(
    file: Option<&Path>,
    prefix: &str,
    variables: &[(String, String)],
) -> Result<T> {
    let scalars = scalars::<T>();
    let (mut settings, misfit) = match file {
        Some(file) => read::<T>(file)?,
        None => (Table::new(), None),
    };
    let mut alone = Vec::new();
    for (name, text) in variables {
        let fault = |why: &str| CliError::usage(format!("{prefix}{name}: {why}"));
        let scalar = scalars.iter().find(|scalar| scalar.variable() == *name);
        let scalar = scalar.ok_or_else(|| fault(&unknown::<T>(prefix, name, &scalars)))?;
        let value = scalar.value(text).map_err(|why| fault(&why))?;
        let mut one = Table::new();
        put(&mut one, &scalar.field, value.clone());
        alone.push((name, &scalar.field, one));
        put(&mut settings, &scalar.field, value);
    }
    let merged = match typed(settings.clone()) {
        Ok(configuration) => return Ok(configuration),
        Err(error) => message_of::<T>(&error),
    };
    for (name, field, one) in alone {
        // The variable is at fault if its setting is invalid both alone and within its merged section, unless the file
        // alone has the same error. It is not enough that the setting is invalid alone, because other settings of its
        // section may be missing.
        if typed::<T>(one).is_err()
            && let Err(error) = typed::<T>(section_of(&settings, field))
            && misfit.as_ref().is_none_or(|misfit| misfit.why != message_of::<T>(&error))
        {
            return Err(CliError::usage(format!("{prefix}{name}: {}", message_of::<T>(&error))));
        }
    }
    Err(CliError::usage(misfit.map_or(merged, |Misfit { at, why }| format!("{at}: {why}"))))
}

/// The error of a file that is not a valid configuration by itself. Variables may correct it.
struct Misfit {
    /// File and line.
    at: String,
    why: String,
}

/// Returns the settings of the field's section, or the field alone if it is in none.
fn section_of(settings: &Table, field: &str) -> Table {
    let first = field.split('.').next().unwrap_or(field);
    settings
        .iter()
        .filter(|(name, _)| *name == first)
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}

fn typed<T: DeserializeOwned>(settings: Table) -> std::result::Result<T, toml::de::Error> {
    Value::Table(settings).try_into()
}

/// Returns the error's message. Adds an example where the library gives none, replaces the list of all keys by the key
/// that was probably meant, and says in words which type is expected.
fn message_of<T: Removed>(error: &toml::de::Error) -> String {
    let examples = [
        ("expected parsable string", SIZE_EXPECTED),
        ("expected a duration", DURATION_EXPECTED),
        ("invalid socket address syntax", ADDRESS_EXPECTED),
    ];
    let message = error.message().to_owned();
    if let Some((unknown, known)) = unknown_field(&message) {
        if let Some(why) = removed::<T>(unknown) {
            return why;
        }
        if let Some(meant) = nearest(unknown, known) {
            return format!("unknown field `{unknown}`; did you mean `{meant}`?");
        }
    }
    let message =
        examples.iter().fold(message, |message, (vague, clear)| message.replace(vague, clear));
    in_words(&message)
}

/// Returns the unknown key and the known keys in a message about an unknown field.
fn unknown_field(message: &str) -> Option<(&str, impl Iterator<Item = &str>)> {
    let (unknown, known) = message.strip_prefix("unknown field `")?.split_once("`, ")?;
    Some((unknown, known.split('`').skip(1).step_by(2)))
}

fn read<T: DeserializeOwned + Removed>(file: &Path) -> Result<(Table, Option<Misfit>)> {
    let shown = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        let doing = format!("the configuration {shown} can't be read");
        CliError::os(&doing, &error, "name another with --config")
    })?;
    let misfit = |error: toml::de::Error| {
        let line = error.span().map_or(1, |span| 1 + text[..span.start].matches('\n').count());
        // The library names other faulty settings itself.
        let start = error.span().map(|span| span.start).filter(|_| is_mistyped(error.message()));
        let setting = start.and_then(|start| setting_at(&text, start));
        let setting = setting.map_or_else(String::new, |name| format!(": `{name}`"));
        Misfit { at: format!("{shown}:{line}{setting}"), why: message_of::<T>(&error) }
    };
    let settings = text.parse().map_err(|error| {
        let Misfit { at, why } = misfit(error);
        CliError::usage(format!("{at}: {why}"))
    })?;
    Ok((settings, toml::from_str::<T>(&text).err().map(misfit)))
}

fn put(settings: &mut Table, field: &str, value: Value) {
    match field.split_once('.') {
        None => drop(settings.insert(field.to_owned(), value)),
        Some((section, rest)) => {
            let section = settings.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(section) = section {
                put(section, rest, value);
            }
        }
    }
}

fn unknown<T: Removed>(prefix: &str, name: &str, scalars: &[Scalar]) -> String {
    if let Some(why) = removed::<T>(&name.to_ascii_lowercase()) {
        return why;
    }
    let known: Vec<String> = scalars.iter().map(Scalar::variable).collect();
    match nearest(name, known.iter().map(String::as_str)) {
        Some(meant) => format!("no such setting; did you mean {prefix}{meant}?"),
        None => {
            format!("no such setting; there are {prefix}{}", known.join(&format!(", {prefix}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use bytesize::ByteSize;
    use io_node::{EngineChoice, IoConfig};
    use query_node::QueryConfig;

    use super::*;

    fn variables(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    fn io(file: Option<&str>, pairs: &[(&str, &str)]) -> std::result::Result<IoConfig, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("io.toml");
        if let Some(text) = file {
            std::fs::write(&path, text).unwrap();
        }
        let file = file.map(|_| path.as_path());
        layered(file, "BIREME_IO_", &variables(pairs)).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_environment_wins_over_the_file_and_the_file_over_defaults() {
        let file = "name = \"from-file\"\nram_tier = \"1GiB\"\n[[drives]]\npath = \"/x\"\n";
        let config =
            io(Some(file), &[("NAME", "from-env"), ("CORES", "3"), ("ENGINE", "io_uring")])
                .unwrap();
        assert_eq!(config.name, "from-env");
        assert_eq!(config.ram_tier, ByteSize::gib(1));
        assert_eq!((config.cores, config.engine), (3, EngineChoice::IoUring));
        assert_eq!(config.drives[0].path.to_str(), Some("/x"));
        assert_eq!(config.slots, IoConfig::default().slots);
    }

    #[test]
    fn variables_set_fields_of_sections() {
        let variables = variables(&[("STORE_REQUESTS_MAX", "7"), ("TIMEOUT", "5s")]);
        let config: QueryConfig = layered(None, "BIREME_QUERY_", &variables).unwrap();
        assert_eq!((config.store.requests_max, config.timeout.as_secs()), (7, 5));
        assert_eq!(config.store.breaker_failures, 8);
    }

    #[test]
    fn settings_that_need_each_other_may_all_be_variables_or_in_both_layers() {
        let (cert, key) = (("TLS_CERT", "/tls.crt"), ("TLS_KEY", "/tls.key"));
        for tls in [
            io(None, &[cert, key]).unwrap().tls,
            io(Some("[tls]\ncert = \"/old.crt\"\nkey = \"/tls.key\"\n"), &[cert]).unwrap().tls,
            io(Some("[tls]\ncert = \"/tls.crt\"\n"), &[key]).unwrap().tls,
        ] {
            let tls = tls.unwrap();
            assert_eq!((tls.cert.to_str(), tls.key.to_str()), (Some(cert.1), Some(key.1)));
        }
        let said = io(None, &[cert]).unwrap_err();
        assert_eq!(said, "BIREME_IO_TLS_CERT: missing field `key`");
        // If the fault is in the file and no variable corrects it, the error names the file. If it is in a variable,
        // the error names the variable.
        let half = "slots = 8\n[tls]\ncert = \"/tls.crt\"\n";
        for corrects_nothing in [&[] as &[_], &[cert], &[("SLOTS", "9")]] {
            let said = io(Some(half), corrects_nothing).unwrap_err();
            assert!(said.contains("io.toml:2: missing field `key`"), "{said}");
        }
        let said = io(Some("[tls]\ncrt = \"/tls.crt\"\n"), &[key]).unwrap_err();
        assert!(said.contains("io.toml:2: unknown field `crt`"), "{said}");
        let said = io(Some(half), &[key, ("SLOTS", "-1")]).unwrap_err();
        assert!(said.starts_with("BIREME_IO_SLOTS: "), "{said}");
        // The variable at fault is named, not another one of its section.
        let said = io(None, &[("TELEMETRY_LOG_FORMAT", "json"), ("TELEMETRY_TRACE_SLOW", "soon")]);
        assert!(said.unwrap_err().starts_with("BIREME_IO_TELEMETRY_TRACE_SLOW: "));
    }

    #[test]
    fn errors_name_the_line_or_the_variable() {
        let said = io(Some("slots = 8\nfil = 3\n"), &[]).unwrap_err();
        assert!(said.contains("io.toml:2: unknown field `fil`, expected one of `"), "{said}");
        let said = io(Some("slots = 8\nram_teer = 3\n"), &[]).unwrap_err();
        assert!(said.ends_with("io.toml:2: unknown field `ram_teer`; did you mean `ram_tier`?"));
        let said = io(Some("[tls]\ncrt = \"/x\"\n"), &[]).unwrap_err();
        assert!(said.ends_with("io.toml:2: unknown field `crt`; did you mean `cert`?"), "{said}");
        // A former setting has its own error message, both in a file and as a variable.
        let fixed = "`read_max` is no longer a setting: its value is fixed (32KiB); remove it";
        let said = io(Some("slots = 8\nread_max = \"64KiB\"\n"), &[]).unwrap_err();
        assert!(said.ends_with(&format!("io.toml:2: {fixed}")), "{said}");
        let said = io(None, &[("READ_MAX", "64KiB")]).unwrap_err();
        assert_eq!(said, format!("BIREME_IO_READ_MAX: {fixed}"));
        let said = io(None, &[("TELEMETRY_OTLP_INTERVAL", "5s")]).unwrap_err();
        assert!(said.contains("OTEL_METRIC_EXPORT_INTERVAL"), "{said}");
        let said =
            layered::<QueryConfig>(None, "BIREME_QUERY_", &variables(&[("LIMITS_K_MAX", "1")]));
        assert!(said.unwrap_err().message().contains("fixed (10,000 rows)"));
        let said = io(None, &[("STORE_PRICES_MILLION_READS", "1")]).unwrap_err();
        assert!(said.contains("S3's list prices"), "{said}");
        let said = io(Some("[store.prices]\nmillion_reads = 1\n"), &[]).unwrap_err();
        assert!(said.contains("S3's list prices"), "{said}");
        // A former setting of the other kind of node is an unknown setting here.
        let said =
            layered::<QueryConfig>(None, "BIREME_QUERY_", &variables(&[("READ_MAX", "64KiB")]));
        let said = said.unwrap_err();
        assert!(said.message().starts_with("BIREME_QUERY_READ_MAX: no such setting"));
        let said = io(Some("slots = \n"), &[]).unwrap_err();
        assert!(said.contains("io.toml:1: "), "{said}");
        let said = io(None, &[("RAM_TEER", "1")]).unwrap_err();
        let meant = "BIREME_IO_RAM_TEER: no such setting; did you mean BIREME_IO_RAM_TIER?";
        assert_eq!(said, meant);
        let said = io(None, &[("COLOUR", "1")]).unwrap_err();
        assert!(said.starts_with("BIREME_IO_COLOUR: no such setting; there are BIREME_IO_"));
        assert!(said.contains(", BIREME_IO_RAM_TIER, "), "{said}");
        let said = io(None, &[("LISTEN", "here")]).unwrap_err();
        assert!(said.starts_with("BIREME_IO_LISTEN: expected an address"), "{said}");
        let said = io(None, &[("RAM_TIER", "much")]).unwrap_err();
        assert!(said.starts_with("BIREME_IO_RAM_TIER: ") && said.contains("512MiB"), "{said}");
        let said = io(Some("idle_poll = \"soon\"\n"), &[]).unwrap_err();
        assert!(said.contains("io.toml:1: ") && said.contains("500ms"), "{said}");
        let said = io(None, &[("SLOTS", "-1")]).unwrap_err();
        assert!(said.starts_with("BIREME_IO_SLOTS: "), "{said}");
    }

    #[test]
    fn a_value_of_another_type_is_told_what_is_expected() {
        fn said<T: DeserializeOwned + JsonSchema + Removed + std::fmt::Debug>(
            text: &str,
        ) -> String {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            layered::<T>(Some(file.path()), "X_", &[]).unwrap_err().message().to_owned()
        }
        let table = said::<QueryConfig>("[tables]\nwords = \"./words.lance\"\n");
        assert!(
            table.ends_with(
                ":2: `tables.words`: invalid type: string \"./words.lance\", expected a section, such as { uri = \
                 \"./words.lance\" }"
            ),
            "{table}"
        );
        // No message names a Rust type, whichever setting it is about.
        fn each<T: DeserializeOwned + JsonSchema + Removed + std::fmt::Debug>() {
            for (name, _) in
                crate::settings::schema::settings(&crate::settings::schema::schema::<T>())
            {
                for value in ["1.5", "[[2]]", "\"x\""] {
                    let file = tempfile::NamedTempFile::new().unwrap();
                    std::fs::write(file.path(), format!("{name} = {value}\n")).unwrap();
                    let Err(error) = layered::<T>(Some(file.path()), "X_", &[]) else { continue };
                    // The file's name is random, and may contain "u64".
                    let path = file.path().to_str().unwrap();
                    let said = error.message().replace(path, "bireme.toml");
                    let is_rust = ["struct ", "usize", "u64", "u32", "f64", "Config", "enum "];
                    assert!(
                        !is_rust.iter().any(|it| said.contains(it)),
                        "{name} = {value}: {said}"
                    );
                    assert!(
                        said.contains(&format!("`{name}`")) || !said.contains("invalid type"),
                        "{said}"
                    );
                }
            }
        }
        each::<IoConfig>();
        each::<QueryConfig>();
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let missing = Path::new("/nonexistent/io.toml");
        let error = layered::<IoConfig>(Some(missing), "BIREME_IO_", &[]).unwrap_err();
        assert!(error.message().contains("/nonexistent/io.toml"));
        assert_eq!(error.exit().number(), 3);
    }
}
