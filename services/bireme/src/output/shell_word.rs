//! Quotes words of a command that can be pasted into a shell.

/// Returns `text` as one word of a shell, in quotes where they are needed.
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
    fn words_with_special_characters_are_quoted() {
        assert_eq!(
            ["s3://b/t", "a b", "it's", "-x", ""].map(shell_word),
            ["s3://b/t", "'a b'", r"'it'\''s'", "'-x'", "''",]
        );
    }
}
