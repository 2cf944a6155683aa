//! Errors for a setting whose value has another type than the setting, without the names of Rust's types.

/// Examples of sections, by the names of the structs that they are read into.
const SECTIONS: [(&str, &str); 10] = [
    ("TableConfig", "{ uri = \"./words.lance\" }"),
    ("IoNodeConfig", "{ endpoint = \"http://10.0.0.5:7071\" }"),
    ("DriveConfig", "{ path = \"/dev/nvme0n1\" }"),
    ("ServerTlsConfig", "{ cert = \"/tls/tls.crt\", key = \"/tls/tls.key\" }"),
    ("ClientTlsConfig", "{ ca = \"/tls/ca.crt\" }"),
    ("ShareConfig", "{ uri = \"s3://bucket/words.lance\", minimum = \"10GiB\" }"),
    ("AlsoReadsConfig", "{ uri = \"s3://bucket/clone.lance\", prefixes = [\"s3://other/\"] }"),
    ("StartWarmConfig", "{ uri = \"s3://bucket/words.lance\" }"),
    ("StoreLimits", "{ requests_max = 64 }"),
    ("TelemetryConfig", "{ metrics_listen = \"127.0.0.1:9464\" }"),
];

/// Returns serde's `message` with what it expected in words. Messages of other kinds stay as they are.
pub fn in_words(message: &str) -> String {
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    if !is_mistyped(message) {
        return message.to_owned();
    }
    let expected = expected.trim_end();
    let wanted = match expected {
        "usize" | "u8" | "u16" | "u32" | "u64" | "u128" => "a whole number that is not negative",
        "isize" | "i8" | "i16" | "i32" | "i64" | "i128" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list, such as [\"a\", \"b\"]",
        "a map" => "a section of named values, such as { name = \"value\" }",
        "path string" => "a path in quotes",
        _ => return format!("{found}, expected {}", section(expected)),
    };
    format!("{found}, expected {wanted}")
}

/// Returns what is expected of the value of a section, or `expected` if that is no struct.
fn section(expected: &str) -> String {
    let Some(name) = expected.strip_prefix("struct ") else { return expected.to_owned() };
    match SECTIONS.iter().find(|(known, _)| *known == name) {
        Some((_, example)) => format!("a section, such as {example}"),
        None => "a section, whose settings are in braces: { name = \"value\" }".to_owned(),
    }
}

/// Returns whether serde's `message` is about a value of the wrong type.
pub fn is_mistyped(message: &str) -> bool {
    message.starts_with("invalid type: ")
}

/// Returns the name of the setting whose value begins at byte `start` of the file `text`, with its section's.
pub fn setting_at(text: &str, start: usize) -> Option<String> {
    let (above, line) = match text.get(..start)?.rsplit_once('\n') {
        Some((above, line)) => (above, line),
        None => ("", text.get(..start)?),
    };
    let key = line.split_once('=')?.0.trim();
    let mut headers = above.lines().rev().map(str::trim);
    let header = headers.find(|line| line.starts_with('['));
    let section = header.map(|it| it.trim_matches(['[', ']', ' ']));
    Some(section.map_or_else(|| key.to_owned(), |section| format!("{section}.{key}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_found_by_its_place() {
        let text = "a = 1\n[tables]\n# c\nwords = 3\n[[drives]]\npath = { x = 2 }\n";
        let at = |value: &str| setting_at(text, text.find(value).unwrap());
        assert_eq!(at("1"), Some("a".into()));
        assert_eq!(at("3"), Some("tables.words".into()));
        assert_eq!(at("2"), Some("drives.path".into()));
        assert_eq!(at("words"), None);
    }

    #[test]
    fn the_examples_of_sections_can_be_read() {
        let example =
            |name: &str| section(&format!("struct {name}")).split_off("a section, such as ".len());
        let text = |settings: &[(&str, &str)]| -> String {
            let line = |&(setting, name): &(&str, &str)| match setting.strip_suffix("[]") {
                Some(list) => format!("{list} = [{}]\n", example(name)),
                None => format!("{setting} = {}\n", example(name)),
            };
            settings.iter().map(line).collect()
        };
        let both = [
            ("tls", "ServerTlsConfig"),
            ("store", "StoreLimits"),
            ("telemetry", "TelemetryConfig"),
        ];
        let of_query = [
            ("tables.words", "TableConfig"),
            ("io_nodes[]", "IoNodeConfig"),
            ("io_tls", "ClientTlsConfig"),
        ];
        let of_io = [
            ("drives[]", "DriveConfig"),
            ("shares[]", "ShareConfig"),
            ("also_reads[]", "AlsoReadsConfig"),
            ("warm_at_start[]", "StartWarmConfig"),
        ];
        toml::from_str::<query_node::QueryConfig>(&text(&[&both[..], &of_query].concat())).unwrap();
        toml::from_str::<io_node::IoConfig>(&text(&[&both[..], &of_io].concat())).unwrap();
        assert_eq!(SECTIONS.len(), both.len() + of_query.len() + of_io.len());
    }

    #[test]
    fn other_messages_stay() {
        for message in ["missing field `uri`", "unknown field `x`, expected one of `a`, `b`"] {
            assert_eq!(in_words(message), message);
        }
        let said = in_words("invalid type: string \"3\", expected usize");
        assert_eq!(
            said,
            "invalid type: string \"3\", expected a whole number that is not negative"
        );
    }
}
