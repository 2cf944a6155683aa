//! The functions that a filter may call.
//!
//! A caller chooses the function and its arguments, and the evaluation of a function can't be interrupted. So a filter
//! may call only functions whose cost is linear in the bytes that they read, and whose output has a constant size
//! (hashes) or is no larger than a small multiple of their input (`upper` makes three times the bytes of some letters;
//! no other function makes more). Joining strings is linear too, and is bounded by
//! [`JOINS_MAX`](super::limits::JOINS_MAX).
//!
//! Every function that Lance and DataFusion register is in `ALLOWED` or `REFUSED`; a test fails if an upgrade brings
//! one that is in neither.

use crate::error::words::quoted;

/// The arguments that a function may be called with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arguments {
    /// At least the first number of arguments, and at most the second.
    Count(usize, usize),
    /// Any strings, which the function joins.
    Joined,
    /// A column or an expression, and a short text in quotes. The cost is the product of both lengths.
    Text,
    /// A column or an expression, and a short list of values. The cost is the product of both lengths.
    List,
    /// A column or an expression, and in quotes the name of a type that is not nested.
    Type,
    /// A column or an expression, and a JSON path in quotes that selects by names and positions only.
    Path,
}

use Arguments::{Count, Joined, List, Path, Text, Type};

/// Allowed functions whose result depends on the time of the call.
const OF_CLOCK: [&str; 4] = ["current_date", "current_timestamp", "now", "today"];

/// Functions that a filter may call, by their lower-case names.
const ALLOWED: &[(&str, Arguments)] = &[
    // Null tests, and choices between values.
    ("is_valid", Count(1, 1)),
    ("coalesce", Count(1, 16)),
    ("ifnull", Count(2, 2)),
    ("nullif", Count(2, 2)),
    ("nvl", Count(2, 2)),
    ("nvl2", Count(3, 3)),
    ("greatest", Count(1, 16)),
    ("least", Count(1, 16)),
    // LanceDB's clients write casts this way, and values for which there is no literal.
    ("arrow_cast", Type),
    // Strings: searches. The second argument is compared at most once with each position of the first.
    ("contains", Text),
    ("contains_tokens", Text),
    ("ends_with", Count(2, 2)),
    ("starts_with", Count(2, 2)),
    ("instr", Text),
    ("position", Text),
    ("strpos", Text),
    // Strings: lengths, parts, conversions and hashes.
    ("ascii", Count(1, 1)),
    ("bit_length", Count(1, 1)),
    ("char_length", Count(1, 1)),
    ("character_length", Count(1, 1)),
    ("length", Count(1, 1)),
    ("octet_length", Count(1, 1)),
    ("btrim", Count(1, 1)),
    ("initcap", Count(1, 1)),
    ("left", Count(2, 2)),
    ("lower", Count(1, 1)),
    ("ltrim", Count(1, 1)),
    ("reverse", Count(1, 1)),
    ("right", Count(2, 2)),
    ("rtrim", Count(1, 1)),
    ("upper", Count(1, 1)),
    ("concat", Joined),
    ("md5", Count(1, 1)),
    ("sha224", Count(1, 1)),
    ("sha256", Count(1, 1)),
    ("sha384", Count(1, 1)),
    ("sha512", Count(1, 1)),
    // Numbers: a constant number of steps per row.
    ("abs", Count(1, 1)),
    ("acos", Count(1, 1)),
    ("acosh", Count(1, 1)),
    ("asin", Count(1, 1)),
    ("asinh", Count(1, 1)),
    ("atan", Count(1, 1)),
    ("atan2", Count(2, 2)),
    ("atanh", Count(1, 1)),
    ("cbrt", Count(1, 1)),
    ("cos", Count(1, 1)),
    ("cosh", Count(1, 1)),
    ("cot", Count(1, 1)),
    ("degrees", Count(1, 1)),
    ("exp", Count(1, 1)),
    ("gcd", Count(2, 2)),
    ("isnan", Count(1, 1)),
    ("iszero", Count(1, 1)),
    ("lcm", Count(2, 2)),
    ("ln", Count(1, 1)),
    ("log", Count(1, 2)),
    ("log10", Count(1, 1)),
    ("log2", Count(1, 1)),
    ("nanvl", Count(2, 2)),
    ("pi", Count(0, 0)),
    ("pow", Count(2, 2)),
    ("power", Count(2, 2)),
    ("radians", Count(1, 1)),
    ("round", Count(1, 2)),
    ("signum", Count(1, 1)),
    ("sin", Count(1, 1)),
    ("sinh", Count(1, 1)),
    ("sqrt", Count(1, 1)),
    ("tan", Count(1, 1)),
    ("tanh", Count(1, 1)),
    ("trunc", Count(1, 2)),
    // Dates and times. Format strings are not allowed: they are parsed anew for each row, and may make strings of any
    // length.
    ("current_date", Count(0, 0)),
    ("current_timestamp", Count(0, 0)),
    ("now", Count(0, 0)),
    ("today", Count(0, 0)),
    ("date_part", Count(2, 2)),
    ("datepart", Count(2, 2)),
    ("date_trunc", Count(2, 2)),
    ("datetrunc", Count(2, 2)),
    ("from_unixtime", Count(1, 1)),
    ("make_date", Count(3, 3)),
    ("to_date", Count(1, 1)),
    ("to_timestamp", Count(1, 1)),
    ("to_timestamp_micros", Count(1, 1)),
    ("to_timestamp_millis", Count(1, 1)),
    ("to_timestamp_nanos", Count(1, 1)),
    ("to_timestamp_seconds", Count(1, 1)),
    ("to_unixtime", Count(1, 1)),
    // Lists: searches, sizes and extremes. Functions of two lists compare each item of one with each item of the other.
    ("array_contains", Count(2, 2)),
    ("array_empty", Count(1, 1)),
    ("array_has", Count(2, 2)),
    ("array_has_all", List),
    ("array_has_any", List),
    ("array_length", Count(1, 1)),
    ("array_max", Count(1, 1)),
    ("array_min", Count(1, 1)),
    ("arrays_overlap", List),
    ("cardinality", Count(1, 1)),
    ("empty", Count(1, 1)),
    ("list_contains", Count(2, 2)),
    ("list_has", Count(2, 2)),
    ("list_has_all", List),
    ("list_has_any", List),
    ("list_empty", Count(1, 1)),
    ("list_length", Count(1, 1)),
    ("list_max", Count(1, 1)),
    // JSON: one value by its name or position.
    ("json_array_length", Path),
    ("json_exists", Path),
    ("json_extract", Path),
    ("json_get", Text),
    ("json_get_bool", Text),
    ("json_get_float", Text),
    ("json_get_int", Text),
    ("json_get_string", Text),
];

/// Returns the arguments that the function `name` (in lower case) takes, or `None` if filters may not call it.
pub(super) fn allowed_arguments(name: &str) -> Option<Arguments> {
    ALLOWED.iter().find(|(known, _)| *known == name).map(|(_, arguments)| *arguments)
}

/// Returns whether the rows that pass `filter` may depend on the time. It only looks for the names in [`OF_CLOCK`], so
/// a column or a text that has such a name counts too.
pub(in crate::search) fn may_read_clock(filter: &str) -> bool {
    let mut words = filter.split(|c: char| !(c.is_alphanumeric() || c == '_'));
    words.any(|word| OF_CLOCK.iter().any(|name| word.eq_ignore_ascii_case(name)))
}

/// Returns the names of all functions that a filter may call.
#[cfg(test)]
pub(super) fn allowed_names() -> impl Iterator<Item = &'static str> {
    ALLOWED.iter().map(|(name, _)| *name)
}

/// Functions that a filter may not call, by reason.
const REFUSED: &[(&str, &[&str])] = &[
    (
        "is an expression of its own in SQL, which Lance does not plan; use `left`, `right`, `btrim`, `round` or `trunc`",
        &["ceil", "floor", "substr", "substring", "trim"],
    ),
    (
        "costs more than its input's length; compare with `=`, `LIKE` or `contains`",
        &["find_in_set", "levenshtein"],
    ),
    (
        "compiles a pattern, possibly for each row; use `LIKE`, `starts_with` or `contains`",
        &["regexp_count", "regexp_instr", "regexp_like", "regexp_match", "regexp_replace"],
    ),
    (
        "makes strings of any length; compare with `=`, `LIKE`, `left` or `||`",
        &[
            "array_join",
            "array_to_string",
            "chr",
            "concat_ws",
            "date_format",
            "decode",
            "digest",
            "encode",
            "list_join",
            "list_to_string",
            "lpad",
            "overlay",
            "repeat",
            "replace",
            "rpad",
            "split_part",
            "substr_index",
            "substring_index",
            "to_char",
            "to_hex",
            "translate",
        ],
    ),
    (
        "makes lists or other nested values; use `array_has`, `array_has_any`, `array_has_all` or `array_length`",
        &[
            "array_any_value",
            "array_append",
            "array_cat",
            "array_compact",
            "array_concat",
            "array_dims",
            "array_distinct",
            "array_element",
            "array_except",
            "array_extract",
            "array_indexof",
            "array_intersect",
            "array_ndims",
            "array_normalize",
            "array_pop_back",
            "array_pop_front",
            "array_position",
            "array_positions",
            "array_prepend",
            "array_push_back",
            "array_push_front",
            "array_remove",
            "array_remove_all",
            "array_remove_n",
            "array_repeat",
            "array_replace",
            "array_replace_all",
            "array_replace_n",
            "array_resize",
            "array_reverse",
            "array_slice",
            "array_sort",
            "array_union",
            "arrays_zip",
            "element_at",
            "flatten",
            "generate_series",
            "list_any_value",
            "list_append",
            "list_cat",
            "list_compact",
            "list_concat",
            "list_dims",
            "list_distinct",
            "list_element",
            "list_except",
            "list_extract",
            "list_indexof",
            "list_intersect",
            "list_ndims",
            "list_normalize",
            "list_pop_back",
            "list_pop_front",
            "list_position",
            "list_positions",
            "list_prepend",
            "list_push_back",
            "list_push_front",
            "list_remove",
            "list_remove_all",
            "list_remove_n",
            "list_repeat",
            "list_replace",
            "list_replace_all",
            "list_replace_n",
            "list_resize",
            "list_reverse",
            "list_slice",
            "list_sort",
            "list_union",
            "list_zip",
            "make_array",
            "make_list",
            "map",
            "map_entries",
            "map_extract",
            "map_keys",
            "map_values",
            "named_struct",
            "range",
            "row",
            "string_to_array",
            "string_to_list",
            "struct",
        ],
    ),
    (
        "calls an expression for each item; use `array_has_any` or `array_has_all`",
        &[
            "any_match",
            "array_any_match",
            "array_filter",
            "array_transform",
            "list_any_match",
            "list_filter",
            "list_transform",
        ],
    ),
    (
        "compares vectors; search by a vector instead",
        &["array_distance", "cosine_distance", "dot_product", "inner_product", "list_distance"],
    ),
    (
        "reads a type, a format, an interval or a path from a text; use `CAST(x AS type)`, `date_trunc` or `json_extract`",
        &[
            "arrow_try_cast",
            "cast_to_type",
            "current_time",
            "date_bin",
            "json_array_contains",
            "json_extract_with_type",
            "make_time",
            "to_local_time",
            "to_time",
            "try_cast_to_type",
        ],
    ),
    ("returns another result each time", &["rand", "random", "uuid"]),
    (
        "needs Lance's `geo`, which Bireme is built without",
        &[
            "st_area",
            "st_contains",
            "st_coveredby",
            "st_covers",
            "st_crosses",
            "st_distance",
            "st_intersects",
            "st_length",
            "st_overlaps",
            "st_touches",
            "st_within",
        ],
    ),
    (
        "has no use in a filter",
        &[
            "arrow_field",
            "arrow_metadata",
            "arrow_typeof",
            "get_field",
            "union_extract",
            "union_tag",
            "version",
            "with_metadata",
            "factorial",
        ],
    ),
];

/// Returns why a filter may not call the function `name` (in lower case).
pub(super) fn why_refused(name: &str) -> String {
    match REFUSED.iter().find(|(_, names)| names.contains(&name)) {
        Some((why, _)) => format!("the function `{name}` is not offered in filters: it {why}"),
        None => format!("there is no function {}", quoted(name)),
    }
}
