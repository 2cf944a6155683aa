//! Identities of callers, and the part of a grant that names them.

use std::fmt;

use peers::NamePattern;

use crate::pattern::Pattern;

/// The identity of a caller, as its credentials prove it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The names of a client certificate, at least one.
    Certificate(Vec<String>),
    /// The subject of a token.
    Token {
        /// The issuer's name in the policy.
        issuer: String,
        /// The token's `sub`.
        subject: String,
    },
    /// The name of an API key in the policy.
    Key(String),
    /// A caller without credentials.
    Anyone,
}

impl fmt::Display for Identity {
    /// Writes the identity as a grant would name it. Of a certificate's names, it writes the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificate(names) => {
                write!(f, "san:{}", names.first().map_or("", String::as_str))
            }
            Self::Token { issuer, subject } => write!(f, "jwt:{issuer}:{subject}"),
            Self::Key(name) => write!(f, "key:{name}"),
            Self::Anyone => f.write_str("anyone"),
        }
    }
}

/// An entry of `who`: the callers that a grant is for.
#[derive(Clone, Debug)]
pub enum Who {
    /// Certificates with a name that the pattern covers.
    Certificate(NamePattern),
    /// Tokens of an issuer, with a subject that the pattern covers.
    Token {
        /// The issuer's name in the policy.
        issuer: String,
        /// The pattern of subjects.
        subject: Pattern,
    },
    /// The API key of that name.
    Key(String),
    /// Every caller.
    Anyone,
}

impl Who {
    /// Parses an entry.
    ///
    /// # Errors
    /// A description of the problem, and the forms that an entry may have.
    pub fn parse(text: &str) -> Result<Self, String> {
        let unusable = || {
            Err(format!(
                "`{text}` names no caller; write san:NAME, jwt:ISSUER:SUBJECT, key:NAME or anyone"
            ))
        };
        if text.chars().any(char::is_control) {
            return unusable();
        }
        match text.split_once(':') {
            None if text == "anyone" => Ok(Self::Anyone),
            Some((_, "")) => unusable(),
            Some(("san", name)) => Ok(Self::Certificate(NamePattern::new(name))),
            Some(("key", name)) => Ok(Self::Key(name.to_owned())),
            Some(("jwt", rest)) => match rest.split_once(':') {
                Some((issuer, subject)) if !subject.is_empty() => {
                    Ok(Self::Token { issuer: issuer.to_owned(), subject: Pattern::new(subject) })
                }
                _ => unusable(),
            },
            _ => unusable(),
        }
    }

    /// Returns whether the entry covers a caller.
    pub fn covers(&self, identity: &Identity) -> bool {
        match (self, identity) {
            (Self::Anyone, _) => true,
            (Self::Certificate(pattern), Identity::Certificate(names)) => {
                names.iter().any(|name| pattern.covers(name))
            }
            (
                Self::Token { issuer, subject },
                Identity::Token { issuer: of_token, subject: of_caller },
            ) => issuer == of_token && subject.covers(of_caller),
            (Self::Key(name), Identity::Key(of_caller)) => name == of_caller,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_cover_their_callers_alone() {
        let token =
            Identity::Token { issuer: "kube".into(), subject: "system:serviceaccount:a:b".into() };
        let certificate =
            Identity::Certificate(vec!["Search.example".into(), "spiffe://prod/a".into()]);
        let key = Identity::Key("ci".into());
        for (text, covered) in [
            ("anyone", [true, true, true]),
            ("san:search.EXAMPLE", [false, true, false]),
            ("san:spiffe://prod/*", [false, true, false]),
            ("san:*.other", [false, false, false]),
            ("jwt:kube:system:serviceaccount:a:*", [true, false, false]),
            ("jwt:other:*", [false, false, false]),
            ("key:ci", [false, false, true]),
        ] {
            let who = Who::parse(text).unwrap();
            assert_eq!([&token, &certificate, &key].map(|it| who.covers(it)), covered, "{text}");
        }
        assert_eq!(token.to_string(), "jwt:kube:system:serviceaccount:a:b");
        for text in ["everyone", "san:", "jwt:kube", "jwt:kube:", "cert:x", ""] {
            assert!(Who::parse(text).unwrap_err().contains("write san:NAME"), "{text}");
        }
    }
}
