//! The settings of searches and their measured recall, as `tune` and `describe` show them.

use serde_json::{Value, json};
use wire::query::RecallSetting;

use super::text_table::{Align, TextTable};

/// The values of k that are shown as text. JSON has every k that was measured.
const SHOWN_KS: [u32; 2] = [10, 100];

/// Returns a table of the settings.
pub fn recall_text(settings: &[RecallSetting]) -> TextTable {
    let mut text = TextTable::new([
        ("k", Align::Right),
        ("recall wanted", Align::Right),
        ("nprobes", Align::Right),
        ("refine", Align::Right),
        ("measured", Align::Right),
        ("at least", Align::Right),
        ("cost", Align::Right),
    ]);
    for setting in settings.iter().filter(|it| SHOWN_KS.contains(&it.k)) {
        let wanted = match setting.wanted {
            0.0 => "(default)".to_owned(),
            wanted => wanted.to_string(),
        };
        text.row(vec![
            setting.k.to_string(),
            wanted,
            setting.nprobes.to_string(),
            setting.refine_factor.to_string(),
            format!("{:.3}", setting.recall),
            format!("{:.3}", setting.recall_low),
            format!("{:.0}", setting.cost),
        ]);
    }
    text
}

/// Returns a setting as JSON.
pub fn recall_json(setting: &RecallSetting) -> Value {
    json!({
        "k": setting.k,
        "recall_wanted": (setting.wanted > 0.0).then(|| decimal(setting.wanted)),
        "nprobes": setting.nprobes,
        "refine": setting.refine_factor,
        "recall": decimal(setting.recall),
        "recall_low": decimal(setting.recall_low),
        "cost": decimal(setting.cost),
    })
}

/// Converts a number by way of its text, so that 0.95 is printed as 0.95, not as 0.949999988079071.
fn decimal(number: f32) -> f64 {
    number.to_string().parse().unwrap_or_else(|_| f64::from(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_shown_for_two_numbers_of_rows() {
        let setting = |k, wanted| RecallSetting {
            k,
            wanted,
            nprobes: 12,
            refine_factor: 4,
            recall: 0.9534,
            recall_low: 0.945,
            cost: 77.4,
        };
        let settings = [setting(10, 0.0), setting(20, 0.95), setting(100, 0.95)];
        let text = recall_text(&settings).text(100);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[1], ["10", "(default)", "12", "4", "0.953", "0.945", "77"]);
        assert_eq!(lines[2][1], "0.95");
        let json = recall_json(&settings[2]);
        assert_eq!((&json["recall_wanted"], &json["recall"]), (&json!(0.95), &json!(0.9534)));
        assert!(recall_json(&settings[0])["recall_wanted"].is_null());
    }
}
