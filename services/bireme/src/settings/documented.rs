//! Generates the tables of `docs/operating/settings.md` from the code: texts and types from the structs that files are
//! read into, defaults from those structs without any settings, flags and variables from the commands.
//! `BIREME_WRITE_DOCS=1` writes the file; otherwise the test compares it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use connections::tls::{ClientTlsConfig, ServerTlsConfig};
use io_node::{
    Admission, AlsoReadsConfig, DriveConfig, EngineChoice, IoConfig, ShareConfig, StartWarmConfig,
};
use lake::{StoreLimits, StorePrices};
use query_node::{IoNodeConfig, Limits, QueryConfig, TableConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use telemetry::{LogFormat, TelemetryConfig};

use super::scalar::{Scalar, io_scalars, query_scalars};
use crate::cli::Cli;
use crate::commands::{io, query};

/// Flags with another name than their setting.
const RENAMED: [(&str, &str); 5] = [
    ("no-pin", "pin"),
    ("drive", "drives"),
    ("table", "tables"),
    ("io-node", "io_nodes"),
    ("metrics", "telemetry.metrics_listen"),
];

/// Structs that nodes of both tiers have; they are documented once.
const SHARED: [&str; 3] = ["ServerTlsConfig", "StoreLimits", "TelemetryConfig"];

/// An empty cell.
const NOTHING: &str = "–";

/// A struct of a node's settings.
struct Form {
    fields: Vec<Field>,
    /// The values if only the required fields are given.
    defaults: Value,
    required: Vec<String>,
}

struct Field {
    name: String,
    /// The type in Rust.
    kind: String,
    text: String,
}

/// Whether a field holds one value, a list or a map, and the values' type.
enum Holds<'a> {
    One(&'a str),
    Many(&'a str),
    Named(&'a str),
}

impl Form {
    fn of<T: DeserializeOwned + Serialize>(name: &str, source: &str) -> Self {
        let (mut given, mut required) = (toml::Table::new(), Vec::new());
        let form: T = loop {
            let error = match toml::Value::Table(given.clone()).try_into::<T>() {
                Ok(form) => break form,
                Err(error) => error.message().to_owned(),
            };
            let field = error.strip_prefix("missing field `").and_then(|it| it.strip_suffix('`'));
            let field = field.unwrap_or_else(|| panic!("{name}: {error}")).to_owned();
            given.insert(field.clone(), "x".into());
            required.push(field);
        };
        let (fields, defaults) = (fields(name, source), serde_json::to_value(form).unwrap());
        let found: BTreeSet<&str> = fields.iter().map(|field| field.name.as_str()).collect();
        let held = defaults.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, held, "fields of {name} in its source, and when serialized");
        Self { fields, defaults, required }
    }

    fn default(&self, field: &Field) -> String {
        if self.required.contains(&field.name) {
            return "required".into();
        }
        match &self.defaults[&field.name] {
            Value::String(text) if field.kind.contains("ByteSize") => {
                let text = text.replace(".0 ", "").replace(' ', "");
                format!("`{}`", if text == "0B" { "0" } else { &text })
            }
            Value::String(text) => format!("`{text}`"),
            Value::Bool(is) => format!("`{is}`"),
            Value::Number(number) => format!("`{number}`"),
            Value::Null | Value::Array(_) | Value::Object(_) => NOTHING.into(),
        }
    }
}

/// Reads the fields from a struct's definition, which rustfmt keeps to one field per line.
fn fields(form: &str, source: &str) -> Vec<Field> {
    let begin = format!("pub struct {form} {{\n");
    let (_, after) = source.split_once(&begin).unwrap_or_else(|| panic!("no {form}"));
    let (body, _) = after.split_once("\n}\n").unwrap();
    let (mut fields, mut text, mut is_fixed) = (Vec::new(), Vec::new(), false);
    for line in body.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            text.push(words);
        } else if line == "#[serde(skip)]" {
            is_fixed = true;
        } else if let Some((name, kind)) =
            line.strip_prefix("pub ").and_then(|it| it.split_once(": "))
        {
            let (name, kind) = (name.to_owned(), kind.trim_end_matches(',').to_owned());
            let text = std::mem::take(&mut text).join(" ");
            if !std::mem::take(&mut is_fixed) {
                fields.push(Field { name, kind, text });
            }
        }
    }
    fields
}

impl Field {
    fn holds(&self) -> Holds<'_> {
        let argument = |begin: &str| self.kind.strip_prefix(begin)?.strip_suffix('>');
        if let Some(kind) = argument("Vec<") {
            Holds::Many(kind)
        } else if let Some(kind) =
            argument("BTreeMap<String, ").or_else(|| argument("HashMap<String, "))
        {
            Holds::Named(kind)
        } else {
            Holds::One(argument("Option<").unwrap_or(&self.kind))
        }
    }
}

/// Returns how a value of a Rust type is written in a file.
fn written(kind: &str) -> String {
    match kind {
        "ByteSize" => "size: `64GiB`".into(),
        "Duration" => "time: `500ms`".into(),
        "SocketAddr" => "address: `0.0.0.0:7071`".into(),
        "usize" | "u32" | "u64" => "whole number".into(),
        "f64" => "number".into(),
        "bool" => "`true` or `false`".into(),
        "String" | "Source" => "text".into(),
        "PathBuf" => "path".into(),
        "EngineChoice" => choices::<EngineChoice>(),
        "Admission" => choices::<Admission>(),
        "LogFormat" => choices::<LogFormat>(),
        _ => panic!("no text says how a {kind} is written"),
    }
}

/// Returns the names that an enum accepts, as serde's error lists them.
fn choices<T: DeserializeOwned>() -> String {
    let unknown = toml::Value::String("?".into()).try_into::<T>().err().unwrap();
    let (_, expected) = unknown.message().split_once("expected ").unwrap();
    let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
    format!("`{}`", names.join("`, `"))
}

/// A table of the settings of some structs.
struct Table<'a> {
    forms: &'a BTreeMap<&'static str, Form>,
    /// The prefix of the variables, and the settings that have one.
    variables: (String, Vec<Scalar>),
    flags: BTreeMap<String, String>,
    out: String,
}

impl Table<'_> {
    fn add(&mut self, prefix: &str, form: &str) {
        let forms = self.forms;
        for field in &forms[form].fields {
            let key = format!("{prefix}{}", field.name);
            let (inner, shown, below) = match field.holds() {
                Holds::One(kind) => (kind, format!("section `[{key}]`"), format!("{key}.")),
                Holds::Many(kind) => (kind, format!("sections `[[{key}]]`"), format!("{key}[].")),
                Holds::Named(kind) => {
                    (kind, format!("sections `[{key}.NAME]`"), format!("{key}.NAME."))
                }
            };
            let is_form = forms.contains_key(inner);
            let written = match field.holds() {
                _ if is_form => shown,
                Holds::One(kind) => written(kind),
                Holds::Many("UriPrefix") => "list of URIs and prefixes".into(),
                Holds::Many(kind) => format!("list of {}s", written(kind)),
                Holds::Named(kind) => format!("section `[{key}]` of {}s", written(kind)),
            };
            let default = forms[form].default(field);
            self.row(&key, &default, &written, &field.text);
            if is_form && !(SHARED.contains(&inner) && prefix.is_empty()) {
                self.add(&below, inner);
            }
        }
    }

    fn row(&mut self, key: &str, default: &str, written: &str, text: &str) {
        let (prefix, scalars) = &self.variables;
        let scalar = scalars.iter().find(|scalar| scalar.field == key);
        let variable = scalar.map(|scalar| format!("`{prefix}{}`", scalar.variable()));
        let variable = variable.unwrap_or_else(|| NOTHING.into());
        let flag = self.flags.remove(key).unwrap_or_else(|| NOTHING.into());
        writeln!(self.out, "| `{key}` | {flag} | {variable} | {default} | {written} | {text} |")
            .unwrap();
    }
}

const HEAD: &str =
    "| key | flag | variable | default | written as | |\n|---|---|---|---|---|---|\n";

/// Returns the command's flags that set a setting, by the setting, and its other flags.
fn flags(command: &Command, keys: &[String]) -> (BTreeMap<String, String>, Vec<Arg>) {
    let (mut flags, mut others) = (BTreeMap::new(), Vec::new());
    for arg in command.get_arguments() {
        let Some(long) = arg.get_long() else { continue };
        let renamed = RENAMED.iter().find(|(flag, _)| *flag == long).map(|(_, key)| *key);
        let key = renamed.map_or_else(|| long.replace('-', "_"), str::to_owned);
        match keys.contains(&key) {
            true => drop(flags.insert(key, format!("`--{long}`"))),
            false => others.push(arg.clone()),
        }
    }
    (flags, others)
}

/// Flags that set no setting, with the commands that take them.
#[derive(Default)]
struct Others(Vec<(String, Vec<String>)>);

impl Others {
    fn add(&mut self, command: &str, arg: &Arg) {
        let flag = format!("`--{}`", arg.get_long().unwrap_or_default());
        let variable = arg.get_env().map(|name| format!("`{}`", name.to_string_lossy()));
        let default = arg.get_default_values().first();
        let default = default.map(|value| format!("`{}`", value.to_string_lossy()));
        let written = arg.get_value_names().and_then(|names| names.first());
        let written = written.filter(|_| arg.get_action().takes_values());
        let [variable, default, written] =
            [variable, default, written.map(|name| format!("`{name}`"))]
                .map(|it| it.unwrap_or_else(|| NOTHING.into()));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default().replace('|', "\\|");
        let row = format!("| {flag} | {variable} | {default} | {written} | {help} |");
        let command = format!("`{command}`");
        match self.0.iter_mut().find(|(known, _)| *known == row) {
            Some((_, commands)) => commands.push(command),
            None => self.0.push((row, vec![command])),
        }
    }

    fn text(&self) -> String {
        let mut out =
            "| commands | flag | variable | default | written as | |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for (row, commands) in &self.0 {
            writeln!(out, "| {} {row}", commands.join(", ")).unwrap();
        }
        out
    }
}

fn forms() -> BTreeMap<&'static str, Form> {
    let io = include_str!("../../../io-node/src/config.rs");
    let serve = include_str!("../../../io-node/src/config/serve.rs");
    let share = include_str!("../../../io-node/src/config/share.rs");
    let start_warm = include_str!("../../../io-node/src/config/start_warm.rs");
    let query = include_str!("../../../query-node/src/config.rs");
    let member = include_str!("../../../membership/src/config.rs");
    let limits = include_str!("../../../stores/src/limits.rs");
    let telemetry = include_str!("../../../telemetry/src/config.rs");
    let server = include_str!("../../../connections/src/tls/server.rs");
    let client = include_str!("../../../connections/src/tls/client.rs");
    BTreeMap::from([
        ("IoConfig", Form::of::<IoConfig>("IoConfig", io)),
        ("DriveConfig", Form::of::<DriveConfig>("DriveConfig", io)),
        ("AlsoReadsConfig", Form::of::<AlsoReadsConfig>("AlsoReadsConfig", serve)),
        ("ShareConfig", Form::of::<ShareConfig>("ShareConfig", share)),
        ("StartWarmConfig", Form::of::<StartWarmConfig>("StartWarmConfig", start_warm)),
        ("QueryConfig", Form::of::<QueryConfig>("QueryConfig", query)),
        ("TableConfig", Form::of::<TableConfig>("TableConfig", query)),
        ("Limits", Form::of::<Limits>("Limits", query)),
        ("IoNodeConfig", Form::of::<IoNodeConfig>("IoNodeConfig", member)),
        ("StoreLimits", Form::of::<StoreLimits>("StoreLimits", limits)),
        ("StorePrices", Form::of::<StorePrices>("StorePrices", limits)),
        ("TelemetryConfig", Form::of::<TelemetryConfig>("TelemetryConfig", telemetry)),
        ("ServerTlsConfig", Form::of::<ServerTlsConfig>("ServerTlsConfig", server)),
        ("ClientTlsConfig", Form::of::<ClientTlsConfig>("ClientTlsConfig", client)),
    ])
}

/// Returns the tables by their names in the document.
fn tables() -> [(&'static str, String); 4] {
    let forms = forms();
    let cli = Cli::command();
    let command = |name: &str| cli.find_subcommand(name).unwrap();
    let mut others = Others::default();
    let mut shared_flags = BTreeMap::new();
    let mut node = |name: &str, form: &str, prefix: &str, scalars: Vec<Scalar>| {
        let mut keys: Vec<String> = scalars.iter().map(|scalar| scalar.field.to_owned()).collect();
        keys.extend(forms[form].fields.iter().map(|field| field.name.clone()));
        let (flags, rest) = flags(command(name), &keys);
        rest.iter().for_each(|arg| others.add(name, arg));
        let variables = (prefix.to_owned(), scalars);
        let mut table = Table { forms: &forms, variables, flags, out: HEAD.to_owned() };
        table.add("", form);
        shared_flags.append(&mut table.flags);
        table.out
    };
    let io = node("io", "IoConfig", io::PREFIX, io_scalars());
    let query = node("query", "QueryConfig", query::PREFIX, query_scalars());

    let prefix = "BIREME_{IO,QUERY}_".to_owned();
    let mut both = Table {
        forms: &forms,
        variables: (prefix, io_scalars()),
        flags: shared_flags,
        out: HEAD.to_owned(),
    };
    for (section, form) in
        [("tls.", "ServerTlsConfig"), ("store.", "StoreLimits"), ("telemetry.", "TelemetryConfig")]
    {
        both.add(section, form);
    }
    assert!(both.flags.is_empty(), "flags without a setting: {:?}", both.flags);

    command("up")
        .get_arguments()
        .filter(|arg| arg.get_long().is_some())
        .for_each(|arg| others.add("up", arg));
    for command in
        cli.get_subcommands().filter(|it| !["io", "query", "up"].contains(&it.get_name()))
    {
        let nested = command
            .get_subcommands()
            .map(|it| (format!("{} {}", command.get_name(), it.get_name()), it));
        for (name, command) in nested.chain([(command.get_name().to_owned(), command)]) {
            let variables = command.get_arguments().filter(|arg| arg.get_env().is_some());
            variables.for_each(|arg| others.add(&name, arg));
        }
    }
    [("io", io), ("query", query), ("both", both.out), ("commands", others.text())]
}

#[test]
fn every_setting_is_documented() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operating/settings.md");
    let document = std::fs::read_to_string(path).unwrap();
    let mut text = document.clone();
    for (name, table) in tables() {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let from = text.find(&begin).unwrap_or_else(|| panic!("no {begin}")) + begin.len();
        let to = from + text[from..].find(&end).unwrap_or_else(|| panic!("no {end}"));
        text.replace_range(from..to, &table);
    }
    if std::env::var_os("BIREME_WRITE_DOCS").is_some() {
        return std::fs::write(path, &text).unwrap();
    }
    assert!(
        document == text,
        "docs/operating/settings.md differs from the code; run this test with BIREME_WRITE_DOCS=1"
    );
}
