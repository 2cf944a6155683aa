use fuzz::rand::Rng;
use fuzz::rand::rngs::StdRng;
use url::Url;

use super::*;

fn parsed(text: &str) -> Result<String, BadUri> {
    TableUri::parse(text).map(|uri| uri.as_str().to_owned())
}

#[test]
fn each_table_has_one_form() {
    for (text, canonical) in [
        ("/data/t", "/data/t"),
        ("/data/t/", "/data/t"),
        ("file:///data/t", "/data/t"),
        ("/data/my table/ü@1..2", "/data/my table/ü@1..2"),
        ("s3://b/t", "s3://b/t"),
        ("s3://b/a/t.lance/", "s3://b/a/t.lance"),
        ("gs://my_bucket.x/t", "gs://my_bucket.x/t"),
        ("az://container/t", "az://container/t"),
    ] {
        assert_eq!(parsed(text).as_deref(), Ok(canonical), "{text}");
    }
    let here = std::env::current_dir().unwrap();
    for text in ["t", "./t", "t/"] {
        let uri = TableUri::of_config(text).unwrap();
        assert_eq!(uri.folder(), Some(here.join("t").as_path()), "{text}");
    }
}

#[test]
fn errors_say_why_a_text_is_not_a_table() {
    for (text, error) in [
        ("", BadUri::Empty),
        (" \t", BadUri::Empty),
        ("/", BadUri::Root),
        ("//", BadUri::Root),
        ("file:///", BadUri::Root),
        ("file://", BadUri::Scheme),
        ("s3://b", BadUri::Root),
        ("s3://b/", BadUri::Root),
        ("s3://", BadUri::Scheme),
        ("s3:///t", BadUri::Bucket),
        ("s3://b:9000/t", BadUri::Bucket),
        ("s3://b..c/t", BadUri::Bucket),
        ("file://host/t", BadUri::Host),
        ("file://t", BadUri::Host),
        ("file:/data/t", BadUri::Scheme),
        ("S3://b/t", BadUri::Scheme),
        ("http://b/t", BadUri::Scheme),
        ("memory://t", BadUri::Scheme),
        ("s3+ddb://b/t", BadUri::Scheme),
        ("file+uring:///t", BadUri::Scheme),
        ("abfss://c/t", BadUri::Scheme),
        ("t", BadUri::Relative),
        ("./t", BadUri::Relative),
        ("/data/../t", BadUri::Dots),
        ("/data/./t", BadUri::Dots),
        ("/data/t/..", BadUri::Dots),
        ("s3://b/../c/t", BadUri::Dots),
        ("/data//t", BadUri::Slashes),
        ("/data/t//", BadUri::Slashes),
        ("//data/t", BadUri::Slashes),
        ("s3://b//t", BadUri::Slashes),
        ("s3://key:secret@b/t", BadUri::Userinfo),
        ("s3://b/t?versionId=1", BadUri::Query),
        ("az://c/t?sv=1&sig=x%2F", BadUri::Query),
        ("s3://b/t#x", BadUri::Fragment),
        ("/data/%2e%2e/t", BadUri::Percent),
        ("s3://b/%2E./t", BadUri::Percent),
        ("s3://b/a%2fb", BadUri::Percent),
        ("/data\\t", BadUri::Backslash),
        ("/data/t\nforged", BadUri::Unprintable),
        ("/data/\x1b[2Jt", BadUri::Unprintable),
        ("/data/\u{202e}t", BadUri::Unprintable),
        ("s3://b/t ", BadUri::Space),
        ("s3://b/t /", BadUri::Space),
        (" /data/t", BadUri::Space),
    ] {
        assert_eq!(parsed(text), Err(error), "{text:?}");
        assert_eq!(TableUri::of_wire(text), None, "{text:?}");
    }
    assert_eq!(parsed(&format!("/{}", "x".repeat(BYTES_MAX))), Err(BadUri::Long));
    assert_eq!(TableUri::of_config("../t"), Err(BadUri::Dots));
    assert_eq!(TableUri::of_config("s3:b/t"), Err(BadUri::Scheme));
}

#[test]
fn only_the_canonical_form_is_taken_from_the_network() {
    assert!(TableUri::of_wire("/data/t").is_some());
    for text in ["/data/t/", "file:///data/t", "s3://b/t/"] {
        assert!(TableUri::parse(text).is_ok() && TableUri::of_wire(text).is_none(), "{text}");
    }
}

#[test]
fn a_prefix_covers_what_is_below_it_and_a_table_only_itself() {
    let covers = |prefix: &str, uri: &str| {
        UriPrefix::of_config(prefix).unwrap().covers(&TableUri::parse(uri).unwrap())
    };
    assert!(covers("/data/", "/data/t") && covers("file:///data/", "/data/a/t"));
    assert!(!covers("/data/", "/data") && !covers("/data/", "/data2/t"));
    assert!(covers("/data/t", "/data/t") && !covers("/data/t", "/data/t/u"));
    assert!(!covers("/data/t", "/data/t2"));
    assert!(covers("s3://b/", "s3://b/t") && covers("s3://b/a/", "s3://b/a/t"));
    assert!(!covers("s3://b/", "s3://b2/t") && !covers("s3://b/", "gs://b/t"));
    for (text, error) in [
        ("/", BadUri::Root),
        ("file:///", BadUri::Root),
        ("s3://", BadUri::Scheme),
        ("s3://b", BadUri::Root),
        ("s3://b//", BadUri::Slashes),
        ("/data/../", BadUri::Dots),
        ("", BadUri::Empty),
    ] {
        assert_eq!(UriPrefix::of_config(text), Err(error), "{text:?}");
    }
    let error = serde_json::from_str::<UriPrefix>(r#""s3://key:hidden@b/t""#).unwrap_err();
    assert!(!error.to_string().contains("hidden") && error.to_string().contains('@'), "{error}");
}

#[test]
fn shown_texts_hide_secrets_and_escape_control_characters() {
    for (text, is) in [
        ("s3://b/t", "s3://b/t"),
        ("s3://key:se/cr@et@b/t", "s3://***@b/t"),
        ("az://c/t?sig=secret", "az://c/t?***"),
        ("/a#secret", "/a#***"),
        ("https://b/t?a@b", "https://b/t?***"),
        ("/a\n\x1bb", "/a\\u{a}\\u{1b}b"),
    ] {
        assert_eq!(shown(text), is, "{text:?}");
    }
    assert_eq!(shown(&"x".repeat(4000)).chars().count(), SHOWN_MAX + 1);
}

/// The pieces of which the fuzzer makes URIs: pieces that a parser may interpret specially, and plain parts.
const PIECES: [&str; 34] = [
    "/",
    "/",
    "/",
    "/",
    "//",
    "a",
    "b",
    "a",
    "t",
    ".",
    "..",
    "./",
    "../",
    "%2e",
    "%2E%2e",
    "%2f",
    "%61",
    "file://",
    "file:",
    "s3://",
    "S3://",
    "s3:",
    "memory://",
    "a@",
    ":",
    ":80",
    "?x",
    "#x",
    "\\",
    " ",
    "\t",
    "\n",
    "~",
    "é",
];

/// Returns what Lance opens for a text by its own rules (`uri_to_url`, then the decoded path): scheme, host and parts.
fn opened(text: &str) -> Option<(String, String, Vec<Vec<u8>>)> {
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(_) => Url::from_directory_path(std::path::absolute(text).ok()?).ok()?,
    };
    let mut parts = Vec::new();
    for part in url.path().split('/').map(decoded).filter(|part| !part.is_empty()) {
        match part.as_slice() {
            b"." => {}
            b".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    Some((url.scheme().to_owned(), url.authority().to_owned(), parts))
}

fn decoded(part: &str) -> Vec<u8> {
    let bytes = part.as_bytes();
    let mut decoded = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    decoded
}

fn spelling(rng: &mut StdRng) -> String {
    let start = ["/", "/a/", "s3://b/", "file:///", "./", ""][rng.random_range(0..6)];
    let count = rng.random_range(0..7);
    let rest: String = (0..count).map(|_| PIECES[rng.random_range(0..PIECES.len())]).collect();
    format!("{start}{rest}")
}

#[test]
fn fuzz_each_table_has_one_canonical_uri() {
    let mut accepted = 0;
    fuzz::cases("two spellings of one place", 40_000, |rng| {
        let text = spelling(rng);
        let Ok(uri) = TableUri::of_config(&text) else { return };
        accepted += 1;
        assert_eq!(TableUri::parse(uri.as_str()).as_ref(), Ok(&uri), "{text:?}");
        assert_eq!(TableUri::of_wire(uri.as_str()).as_ref(), Some(&uri), "{text:?}");
        let is_plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let path = uri.as_str().split_once("://").map_or(&uri.as_str()[1..], |(_, path)| path);
        assert!(path.split('/').all(is_plain), "{text:?}: {uri}");
        assert!(!uri.as_str().contains(['%', '?', '#', '\\', '\n']), "{text:?}: {uri}");
        // The URI opens the same table as the text. No other canonical URI opens that table, because the canonical URI
        // is determined by what it opens.
        let target = opened(uri.as_str()).unwrap();
        assert_eq!(opened(&text).unwrap(), target, "{text:?}: {uri}");
        let (scheme, host, parts) = target;
        let parts: Vec<_> = parts.iter().map(|part| String::from_utf8_lossy(part)).collect();
        let before = if scheme == "file" { String::new() } else { format!("{scheme}://{host}") };
        assert_eq!(uri.as_str(), format!("{before}/{}", parts.join("/")), "{text:?}");
    });
    assert!(accepted > 1000, "only {accepted} spellings were accepted");
}
