//! Tests of the check of a filter's tokens: filters that pass, errors of those that do not, and the documentation.

use super::functions::allowed_names;
use super::limits::*;
use super::tokens::check;
use super::without_wrapping;

/// Ordinary filters from the documentation and from other tests.
const ORDINARY: &[&str] = &[
    "id >= 100 AND id < 400",
    "added IS NULL AND id < 510",
    "price > 3 AND name = 'x'",
    "domain = 43",
    "domain == 43",
    "id % 2 = 0",
    "id < 300 AND tag = 'tag-1'",
    "NOT (a = 1 OR b IS NOT NULL) AND c NOT IN (1, 2, 3)",
    "name LIKE 'abc%' OR name NOT ILIKE '%x_' ESCAPE '\\'",
    "a BETWEEN 1 AND 2 AND b NOT BETWEEN 3 AND 4 OR c = 1",
    "day > DATE '2020-01-01' AND at < TIMESTAMP '2020-01-01 00:00:00'",
    "CAST(a AS int) = 3 AND b::double > -1.5 AND c::decimal(10, 2) = 3",
    "CAST(t AS timestamp(3)) > now() AND `odd name` = \"text\"",
    "st.x.y <= 5.0 AND st['x'] = 1 AND list[1] = 2",
    "array_has_any(tags, ['a', 'b']) AND array_length(tags) > 1",
    "array_has_all(flags, [TRUE, -1, null]) OR list_has_any(tags, [])",
    "lower(name) = 'x' AND left(name, 2) = 'ab' AND contains(name, 'y')",
    "first || ' ' || last = 'a b'",
    "is_valid(a) AND coalesce(a, 1) = 1 -- why\n",
    "json_extract(doc, '$.a[0].b') = '1' AND json_get_int(doc, 'n') = 3",
    "a IS DISTINCT FROM b /* c */ AND x = X'ff'",
    "arrow_cast(a, 'Int32') = 3 AND b < arrow_cast('1.25', 'Decimal128(3, 2)')",
    "a IN (arrow_cast(X'0a0b', 'FixedSizeBinary(2)'), arrow_cast(X'0c0d', 'FixedSizeBinary(2)'))",
    "((((a = 1) AND (b = 2)) AND (c = 3)) AND ((d = 4)))",
    "date = '2020' AND left = 1 AND type = 2 AND key = 3",
];

#[test]
fn ordinary_filters_pass() {
    for filter in ORDINARY {
        assert_eq!(check(filter).map(drop), Ok(()), "{filter}");
    }
    let keys: Vec<_> = (0..16_000).map(|key| key.to_string()).collect();
    assert_eq!(check(&format!("id IN ({})", keys.join(", "))), Ok(0));
    let terms: Vec<_> = (0..TERMS_MAX).map(|key| format!("id = {key}")).collect();
    assert_eq!(check(&terms.join(" OR ")), Ok(0));
}

#[test]
fn reads_by_calls_and_likes_are_counted() {
    let filter =
        "lower(a) = upper(lower(b)) AND c LIKE 'x%' AND d NOT ILIKE 'y' AND e::int + 1 = 3";
    assert_eq!(check(filter), Ok(5));
    assert_eq!(check("lower(upper(a || b)) = 'x'"), Ok(4));
}

#[test]
fn the_error_names_what_is_malformed() {
    for (filter, says) in [
        ("", "expected an expression, found its end"),
        ("id >", "expected an expression, found its end"),
        ("id = = 3", "expected an expression, found =;"),
        ("id < 9 adn id > 4", "expected an operator, found adn"),
        ("id < 5) or (1=1", "a `)` closes nothing"),
        ("(a[1) = 2", "a `)` closes nothing"),
        ("(a = 1", "expected `)` or `]`, found its end"),
        ("id = 5; drop table t", "expected an operator, found ;"),
        ("a = 'x", "Unterminated string literal"),
        ("a BETWEEN 1 OR 2", "`BETWEEN` lacks its `AND`"),
        ("a = $1", "expected an expression, found $1"),
        ("a = N'x'", "expected an expression, found N'x'"),
        ("a = E'x'", "expected an operator, found 'x'"),
        ("a ~ 'x'", "expected an operator, found ~"),
        ("CASE WHEN a THEN b END", "expected an operator, found WHEN"),
        ("a IN (SELECT 1)", "expected an operator, found 1"),
        ("EXISTS (SELECT 1)", "there is no function `exists`"),
        ("a = INTERVAL '1 day'", "expected an operator, found '1 day'"),
        ("a > 1 UNION SELECT 1", "expected an operator, found UNION"),
        ("is_valid()", "`is_valid` takes 1 arguments, not 0"),
        ("a.lower(b)", "expected an operator, found ("),
        ("CAST(a AS jsonb)", "expected one of the types"),
        ("CAST(a AS decimal(300, 5))", "a decimal is written like"),
        ("jsonb '[[[1]]]' = a", "expected an operator, found '[[[1]]]'"),
        ("a LIKE b", "the pattern of `LIKE` has to be a text in quotes"),
        ("a LIKE 'x' || b", "has to be a text in quotes and nothing else"),
        ("contains(a, b)", "the second argument of `contains` has to be a text in quotes"),
        (
            "array_has_all(a, a)",
            "the second argument of `array_has_all` has to be a list of values",
        ),
        ("list_has_any(a, [b])", "has to be a list of values, like"),
        ("arrays_overlap(a, ['b'] || c)", "has to be a list of values, like"),
        ("json_extract(a, '$..b') = 1", "the path `$..b` of `json_extract` may"),
        ("json_extract(a, '$[?(@.b)]') = 1", "may select by names and positions only"),
        (
            "levenshtein(a, 'x') < 3",
            "the function `levenshtein` is not offered in filters: it costs",
        ),
        ("length(lpad(a, 5000000)) < 0", "the function `lpad` is not offered in filters: it makes"),
        ("arrow_cast(a, 'List(Int8)') = 1", "`arrow_cast` to `List(Int8)` is not offered"),
        ("arrow_cast(a, 'Decimal128(39, 2)') = b", "is not offered; cast to"),
        ("arrow_cast(a, b) = 1", "the type of `arrow_cast` has to be a text in quotes"),
        ("arrow_cast(a, 'FixedSizeBinary(2147483647)') = b", "is not offered"),
        ("arrow_cast(NULL, 'FixedSizeBinary(65)') = b", "up to 64 bytes"),
        ("Regexp_Like(a, 'x')", "the function `regexp_like` is not offered"),
    ] {
        let said = check(filter).unwrap_err();
        assert!(said.contains(says), "{filter}: {said}");
    }
}

#[test]
fn the_wrapping_is_removed_from_errors_of_filters_with_several_lines() {
    let text = "Error resolving filter expression a > 3: Schema error: it is odd";
    for filter in ["a > 3", "a\n  > 3\n"] {
        assert_eq!(without_wrapping(filter, text), "it is odd", "{filter}");
    }
}

#[test]
fn the_documentation_lists_the_allowed_functions_and_the_limits() {
    let text = include_str!("../../../../../docs/filters.md");
    for name in allowed_names() {
        assert!(text.contains(&format!("`{name}`")), "docs/filters.md lacks {name}");
    }
    let limits = [
        BYTES_MAX,
        TOKENS_MAX,
        HEIGHT_MAX,
        COPIES_MAX,
        TERMS_MAX,
        PASSES_MAX,
        CALLS_MAX,
        PATTERN_BYTES_MAX,
        JOINS_MAX,
    ];
    let limit_lines = text.split("## Limits").nth(1).unwrap().lines().skip(4).take(limits.len());
    for (line, limit) in limit_lines.zip(limits) {
        let said: String =
            line.split('|').rev().nth(1).unwrap().chars().filter(|c| *c != ',').collect();
        let said: String = said.trim().chars().take_while(char::is_ascii_digit).collect();
        assert_eq!(said, limit.to_string(), "{line}");
    }
}
