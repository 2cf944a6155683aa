//! Replaces tables' URIs in faults with the names that callers use.

use wire::Fault;

/// Returns `fault` with each occurrence of the table's URI replaced by its name in angle brackets. The `table` entry of
/// the metadata gets the name alone. If the URI was in a command, the message says that it is to be filled in.
pub fn named(mut fault: Fault, uri: &str, name: &str) -> Fault {
    let shown = format!("<{name}>");
    let hide = |text: &mut String| {
        if text.contains(uri) {
            *text = text.replace(uri, &shown);
        }
    };
    // A fault may be named twice.
    let had_uri = fault.message.contains(uri);
    hide(&mut fault.message);
    if had_uri && fault.message.contains(&format!("--table {shown}")) {
        fault
            .message
            .push_str(&format!("; in the command, write the URI of table `{name}` for {shown}"));
    }
    for (key, value) in &mut fault.metadata {
        match key == "table" && value == uri {
            true => name.clone_into(value),
            false => hide(value),
        }
    }
    fault
}

#[cfg(test)]
mod tests {
    use wire::Reason;

    use super::*;

    #[test]
    fn the_name_stands_for_the_uri() {
        let fault = Fault::new(Reason::TableDamaged, "s3://b/t/data/1.lance of s3://b/t is short")
            .with("table", "s3://b/t")
            .with("file", "s3://b/t/data/1.lance")
            .with("version", 7);
        let expected = Fault::new(Reason::TableDamaged, "<words>/data/1.lance of <words> is short")
            .with("table", "words")
            .with("file", "<words>/data/1.lance")
            .with("version", 7);
        assert_eq!(named(fault, "s3://b/t", "words"), expected);
        let command = Fault::new(Reason::NoIndex, "run `bireme index --table s3://b/t --text a`");
        let once = named(command, "s3://b/t", "words");
        assert_eq!(
            once.message,
            "run `bireme index --table <words> --text a`; in the command, write the URI of table `words` for <words>"
        );
        assert_eq!(named(once.clone(), "s3://b/t", "words"), once);
    }
}
