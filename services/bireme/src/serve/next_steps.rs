//! Commands to try on a table that has just been put into service.

use crate::output::shell_word;

/// How many are shown.
const STEPS: usize = 3;

/// What a table can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFacts {
    /// Its name.
    pub name: String,
    /// A key that there is.
    pub key: Option<String>,
    /// Words that there are, if it has a text index.
    pub words: Option<String>,
    /// Whether it has a vector to search by.
    pub has_vector: bool,
}

/// Three commands, those that show most first.
pub fn next_steps(facts: &TableFacts, endpoint: Option<&str>) -> Vec<String> {
    let name = shell_word(&facts.name);
    let mut steps = Vec::new();
    if let Some(key) = facts.key.as_deref().filter(|_| facts.has_vector) {
        steps.push(format!("bireme search {name} --like {} --explain", shell_word(key)));
    }
    if let Some(words) = &facts.words {
        steps.push(format!("bireme search {name} --text {}", shell_word(words)));
    }
    if let Some(key) = &facts.key {
        steps.push(format!("bireme get {name} {}", shell_word(key)));
    }
    steps.push(format!("bireme describe {name}"));
    steps.push(format!("bireme warm {name}"));
    steps.push("bireme status".into());
    steps.truncate(STEPS);
    if let Some(endpoint) = endpoint {
        steps.iter_mut().for_each(|step| step.push_str(&format!(" --endpoint {endpoint}")));
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_fit_the_table() {
        let words = TableFacts {
            name: "words".into(),
            key: Some("it's".into()),
            words: Some("rowing boat".into()),
            has_vector: true,
        };
        assert_eq!(
            next_steps(&words, None),
            [
                r"bireme search words --like 'it'\''s' --explain",
                "bireme search words --text 'rowing boat'",
                r"bireme get words 'it'\''s'",
            ]
        );
        let bare = TableFacts { name: "t".into(), ..Default::default() };
        assert_eq!(
            next_steps(&bare, Some("http://127.0.0.1:9")),
            ["describe t", "warm t", "status"]
                .map(|step| format!("bireme {step} --endpoint http://127.0.0.1:9"))
        );
    }
}
