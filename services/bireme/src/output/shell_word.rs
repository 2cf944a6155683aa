//! Words of a command that can be pasted.

/// Quoted where a shell would see more in it than a word.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@%+,".contains(c);
    match !text.is_empty() && !text.starts_with('-') && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_take_apart_is_quoted() {
        assert_eq!(
            ["s3://b/t", "a b", "it's", "-x", ""].map(shell_word),
            ["s3://b/t", "'a b'", r"'it'\''s'", "'-x'", "''",]
        );
    }
}
