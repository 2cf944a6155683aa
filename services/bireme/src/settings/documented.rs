//! Generates the tables of `docs/operating/settings.md` from the code. The texts, types, defaults and variables of
//! settings come from the schema of the structs that files are read into; flags and their own variables come from the
//! commands. `BIREME_WRITE_DOCS=1` writes the file; otherwise the test compares it.

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::{Arg, Command, CommandFactory};
use io_node::IoConfig;
use query_node::QueryConfig;
use serde_json::Value;

use super::scalar::{Scalar, scalars};
use super::schema::{json_type, schema, settings};
use crate::cli::Cli;
use crate::commands::{io, query};

/// Flags whose name differs from that of their setting.
const RENAMED: [(&str, &str); 7] = [
    ("no-pin", "pin"),
    ("drive", "drives"),
    ("table", "tables"),
    ("tables", "folders"),
    ("io-node", "io_nodes"),
    ("metrics", "telemetry.metrics_listen"),
    ("probes", "telemetry.probes_listen"),
];

/// Sections that nodes of both tiers have; they are documented once.
const SHARED: [&str; 3] = ["tls", "store", "telemetry"];

/// An empty cell.
const NOTHING: &str = "–";

/// Whether a setting holds one value, a list or a map, and the schema of the values.
enum Holds<'a> {
    One(&'a Value),
    Many(&'a Value),
    Named(&'a Value),
}

impl<'a> Holds<'a> {
    fn of(setting: &'a Value) -> Self {
        let (items, named) = (&setting["items"], &setting["additionalProperties"]);
        match (items.is_object(), named.is_object()) {
            (true, _) => Self::Many(items),
            (false, true) => Self::Named(named),
            (false, false) => Self::One(setting),
        }
    }
}

fn default_of(setting: &Value) -> String {
    match &setting["default"] {
        Value::String(text) if setting["format"] == "size" => {
            let text = text.replace(".0 ", "").replace(' ', "");
            format!("`{}`", if text == "0B" { "0" } else { &text })
        }
        Value::String(text) => format!("`{text}`"),
        Value::Bool(is) => format!("`{is}`"),
        Value::Number(number) => format!("`{number}`"),
        Value::Null | Value::Array(_) | Value::Object(_) => NOTHING.into(),
    }
}

/// Returns how a value is written in a file.
fn written(setting: &Value) -> String {
    if let Some(choices) = setting["oneOf"].as_array() {
        let names: Vec<&str> =
            choices.iter().filter_map(|choice| choice["const"].as_str()).collect();
        return format!("`{}`", names.join("`, `"));
    }
    let written = match (json_type(setting), setting["format"].as_str()) {
        ("string", Some("size")) => "size: `64GiB`",
        ("string", Some("time")) => "time: `500ms`",
        ("string", Some("address")) => "address: `0.0.0.0:7071`",
        ("string", Some("path")) => "path",
        ("string", None) => "text",
        ("integer", _) => "whole number",
        ("number", _) => "number",
        ("boolean", _) => "`true` or `false`",
        _ => panic!("no text says how this is written: {setting}"),
    };
    written.into()
}

/// A table of the settings of some sections.
struct Table {
    /// The prefix of the variables, and the settings that have a variable.
    variables: (String, Vec<Scalar>),
    flags: BTreeMap<String, String>,
    out: String,
}

const HEAD: &str =
    "| key | flag | variable | default | written as | |\n|---|---|---|---|---|---|\n";

impl Table {
    fn new(prefix: &str, scalars: Vec<Scalar>, flags: BTreeMap<String, String>) -> Self {
        Self { variables: (prefix.to_owned(), scalars), flags, out: HEAD.to_owned() }
    }

    fn add(&mut self, prefix: &str, section: &Value) {
        let required = section["required"].as_array();
        for (name, setting) in settings(section) {
            let key = format!("{prefix}{name}");
            let holds = Holds::of(setting);
            let (inner, shown, below) = match holds {
                Holds::One(value) => (value, format!("section `[{key}]`"), format!("{key}.")),
                Holds::Many(value) => (value, format!("sections `[[{key}]]`"), format!("{key}[].")),
                Holds::Named(value) => {
                    (value, format!("sections `[{key}.NAME]`"), format!("{key}.NAME."))
                }
            };
            let is_section = inner["properties"].is_object();
            let written = match holds {
                _ if is_section => shown,
                Holds::One(value) => written(value),
                Holds::Many(value) => format!("list of {}s", written(value)),
                Holds::Named(value) => format!("section `[{key}]` of {}s", written(value)),
            };
            let is_required = required.is_some_and(|names| names.iter().any(|it| it == name));
            let default = if is_required { "required".into() } else { default_of(setting) };
            let text = setting["description"].as_str().unwrap_or_default().replace('\n', " ");
            self.row(&key, &default, &written, &text);
            if is_section && !(prefix.is_empty() && SHARED.contains(&name.as_str())) {
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

/// Returns the command's flags: those that set a setting, by the setting's key, and all others.
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

/// Returns the tables by their names in the document.
fn tables() -> [(&'static str, String); 4] {
    let cli = Cli::command();
    let command = |name: &str| cli.find_subcommand(name).unwrap();
    let mut others = Others::default();
    let mut shared_flags = BTreeMap::new();
    let mut node = |name: &str, prefix: &str, schema: &Value, scalars: Vec<Scalar>| {
        let mut keys: Vec<String> = scalars.iter().map(|scalar| scalar.field.clone()).collect();
        keys.extend(settings(schema).map(|(name, _)| name.clone()));
        let (flags, rest) = flags(command(name), &keys);
        rest.iter().for_each(|arg| others.add(name, arg));
        let mut table = Table::new(prefix, scalars, flags);
        table.add("", schema);
        shared_flags.append(&mut table.flags);
        table.out
    };
    let io_schema = schema::<IoConfig>();
    let io = node("io", io::PREFIX, &io_schema, scalars::<IoConfig>());
    let query = node("query", query::PREFIX, &schema::<QueryConfig>(), scalars::<QueryConfig>());

    let mut both = Table::new("BIREME_{IO,QUERY}_", scalars::<IoConfig>(), shared_flags);
    for section in SHARED {
        both.add(&format!("{section}."), &io_schema["properties"][section]);
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
fn help_texts_name_only_known_variables() {
    let mut known: Vec<String> = Vec::new();
    let mut named: Vec<String> = Vec::new();
    let variable =
        |prefix: &'static str| move |scalar: Scalar| format!("{prefix}{}", scalar.variable());
    known.extend(scalars::<IoConfig>().into_iter().map(variable(io::PREFIX)));
    known.extend(scalars::<QueryConfig>().into_iter().map(variable(query::PREFIX)));
    let mut commands = vec![Cli::command()];
    commands[0].build();
    while let Some(mut command) = commands.pop() {
        let flags = command.get_arguments().filter_map(|arg| arg.get_env());
        known.extend(flags.map(|name| name.to_string_lossy().into_owned()));
        let help = command.render_long_help().to_string();
        let words = help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let is_setting = |word: &&str| {
            // A help text may write `BIREME_IO_<FIELD>` for any setting. The split leaves only the prefix of it, which
            // is not the name of a setting.
            [io::PREFIX, query::PREFIX]
                .iter()
                .any(|prefix| word.strip_prefix(prefix).is_some_and(|field| !field.is_empty()))
        };
        named.extend(words.filter(is_setting).map(str::to_owned));
        commands.extend(command.get_subcommands().cloned());
    }
    assert!(named.len() > 3, "{named:?}");
    let unknown: Vec<_> = named.iter().filter(|name| !known.contains(name)).collect();
    assert!(unknown.is_empty(), "no such variables: {unknown:?}");
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
