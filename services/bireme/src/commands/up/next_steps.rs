//! Commands to try on a table that has just been put into service.

use std::path::PathBuf;

use crate::output::shell_word;

/// The maximum number of commands that are shown.
const STEPS: usize = 3;

/// The facts about a table from which the suggested commands are made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// The table's name; empty if there is no table yet.
    pub name: String,
    /// The key of one of its rows.
    pub key: Option<String>,
    /// Words of one of its rows, if it has a text index.
    pub words: Option<String>,
    /// Whether it has a vector column to search by.
    pub has_vector: bool,
}

/// Returns at most three commands of `program` to try on the table, the most instructive first.
pub fn next_steps(facts: &TableFacts, program: &str, endpoint: Option<&str>) -> Vec<String> {
    let name = shell_word(&facts.name);
    let mut steps = Vec::new();
    if let Some(key) = facts.key.as_deref().filter(|_| facts.has_vector) {
        steps.push(format!("search {name} --like {} --explain", shell_word(key)));
    }
    if let Some(words) = &facts.words {
        steps.push(format!("search {name} --text {}", shell_word(words)));
    }
    if let Some(key) = &facts.key {
        steps.push(format!("get {name} {}", shell_word(key)));
    }
    if facts.name.is_empty() {
        steps.push("tables".into());
    } else {
        steps.push(format!("describe {name}"));
        steps.push(format!("warm {name}"));
    }
    steps.push("status".into());
    steps.truncate(STEPS);
    let at = endpoint.map_or(String::new(), |endpoint| format!(" --endpoint {endpoint}"));
    let program = shell_word(program);
    steps.iter().map(|step| format!("{program} {step}{at}")).collect()
}

/// Returns the word with which a shell finds this program: its name if it was started by name, else its path.
pub fn program() -> String {
    let typed = std::env::args_os().next().map(PathBuf::from);
    let path = typed.filter(|typed| typed.components().count() > 1);
    let path = path.and_then(|path| std::path::absolute(path).ok());
    path.map_or("bireme".into(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_fit_the_table() {
        let words = TableFacts {
            name: "words".into(),
            key: Some("it's".into()),
            words: Some("strong wind".into()),
            has_vector: true,
        };
        assert_eq!(
            next_steps(&words, "bireme", None),
            [
                r"bireme search words --like 'it'\''s' --explain",
                "bireme search words --text 'strong wind'",
                r"bireme get words 'it'\''s'",
            ]
        );
        let none = next_steps(&TableFacts::default(), "bireme", None);
        assert_eq!(none, ["bireme tables", "bireme status"]);
        let bare = TableFacts { name: "t".into(), ..Default::default() };
        assert_eq!(
            next_steps(&bare, "/opt/my tools/bireme", Some("http://127.0.0.1:9")),
            ["describe t", "warm t", "status"]
                .map(|step| format!("'/opt/my tools/bireme' {step} --endpoint http://127.0.0.1:9"))
        );
    }
}
