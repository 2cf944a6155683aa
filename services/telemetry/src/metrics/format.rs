//! Content negotiation: chooses the format of `/metrics` from the `Accept` header.

use hyper::header::{ACCEPT, HeaderMap};
use mime::Mime;

/// A format of metrics, in ascending order of preference. The order decides between formats of equal weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// OpenMetrics text.
    Text,
    /// Length-delimited protobuf messages.
    Protobuf,
}

/// Returns the format with the highest weight in `Accept` (RFC 9110, section 12.5.1). If the header names none, returns
/// text, which every reader supports.
pub fn wanted(headers: &HeaderMap) -> Format {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|accept| accept.to_str().ok());
    let ranges = accepts.flat_map(|accept| accept.split(','));
    let ranges = ranges.filter_map(|range| range.trim().parse::<Mime>().ok());
    let accepted = ranges.filter_map(|range| Some((weight(&range), format_of(&range)?)));
    let accepted = accepted.filter(|(weight, _)| *weight > 0.0);
    let best = accepted.max_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    best.map_or(Format::Text, |(_, format)| format)
}

fn weight(range: &Mime) -> f32 {
    range.get_param("q").and_then(|weight| weight.as_str().parse().ok()).unwrap_or(1.0)
}

fn format_of(range: &Mime) -> Option<Format> {
    let is = |param, value| range.get_param(param).is_some_and(|it| it == value);
    match (range.type_().as_str(), range.subtype().as_str()) {
        ("application", "vnd.google.protobuf") => {
            let is_delimited = range.get_param("encoding").is_none() || is("encoding", "delimited");
            let is_supported = is("proto", "io.prometheus.client.MetricFamily") && is_delimited;
            is_supported.then_some(Format::Protobuf)
        }
        ("application", "openmetrics-text") | ("text" | "*", "plain" | "*") => Some(Format::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn the_format_of_highest_weight_is_chosen() {
        const PROTOBUF: &str = "application/vnd.google.protobuf; \
                                proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let protobuf = |more: &str| format!("{PROTOBUF}{more}");
        for (accepts, expected) in [
            (vec![], Format::Text),
            (vec!["*/*".to_owned()], Format::Text),
            (vec!["text/plain;version=0.0.4;q=0.3".into()], Format::Text),
            (vec!["application/openmetrics-text".into()], Format::Text),
            (vec![protobuf(""), "application/openmetrics-text".into()], Format::Protobuf),
            (vec![protobuf(";q=0.4"), "application/openmetrics-text;q=0.6".into()], Format::Text),
            (vec![protobuf(";q=0.4"), "text/plain;q=0.3,*/*;q=0.1".into()], Format::Protobuf),
            (vec![protobuf(";q=0")], Format::Text),
            (vec![PROTOBUF.replace("delimited", "compact-text")], Format::Text),
            (vec!["application/vnd.google.protobuf".into()], Format::Text),
            (vec![format!("what is this, {PROTOBUF}")], Format::Protobuf),
        ] {
            let mut headers = HeaderMap::new();
            for accept in &accepts {
                headers.append(ACCEPT, HeaderValue::from_str(accept).unwrap());
            }
            assert_eq!(wanted(&headers), expected, "{accepts:?}");
        }
    }
}
