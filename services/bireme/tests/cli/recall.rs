//! `bireme tune`, and how searches and `describe` use its curve.

use crate::up::Up;
use crate::{bireme, run, text};

#[test]
fn a_curve_is_measured_kept_described_and_used() {
    let up = Up::start();
    let table = up.folder.path().join("words");
    let wants = ["search", "words", "--like", "n02503517", "--recall", "0.9"];
    up.names(&wants, 2, "measure it with `bireme tune words`");
    up.names(&["tune", "words"], 2, "--uri");
    let elsewhere = up.folder.path().join("nothing");
    up.names(&["tune", "words", "--uri", text(&elsewhere)], 3, "nothing");
    // The folder is refused before the node is asked: it serves no such table.
    let folder = text(up.folder.path());
    up.names(&["tune", "nope", "--output", folder], 2, "can't be written");

    let shown = run(&["describe", "words", "--endpoint", &up.endpoint]);
    assert!(shown.contains("vector_vector is not known; `bireme tune words` measures"), "{shown}");

    let file = up.folder.path().join("words.curve");
    let tune = ["tune", "words", "--rows", "60", "--uri", text(&table), "--output", text(&file)];
    let tuned = &up.json(&tune)[0];
    assert_eq!((&tuned["column"], &tuned["questions"]), (&"vector".into(), &60.into()));
    let kept = tuned["kept"].as_array().unwrap();
    assert_eq!(kept[0], text(&file));
    assert!(kept.iter().all(|path| std::fs::exists(path.as_str().unwrap()).unwrap()), "{kept:?}");
    let settings = tuned["settings"].as_array().unwrap();
    let of = |wanted: Option<f64>| {
        settings.iter().find(|it| it["k"] == 10 && it["recall_wanted"].as_f64() == wanted).unwrap()
    };
    assert_eq!((&of(None)["nprobes"], &of(None)["refine"]), (&20.into(), &10.into()));
    assert!(of(Some(0.9))["recall"].as_f64().unwrap() >= 0.9);

    // Wait until the node may look for curves again (2 s after the last time). The next search that asks for a recall
    // then does so.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let found = up.json(&[&wants[..], &["--explain"]].concat());
    let stages = found.last().unwrap()["_explain"]["stages"].as_array().unwrap();
    let detail =
        stages.iter().find(|it| it["name"] == "search").unwrap()["detail"].as_str().unwrap();
    let (nprobes, refine) = (&of(Some(0.9))["nprobes"], &of(Some(0.9))["refine"]);
    let says = format!("nprobes {nprobes} and refine factor {refine} for recall 0.9");
    assert!(detail.contains(&says), "{detail}: {says}");
    let described = &up.json(&["describe", "words"])[0];
    let mut recalls = described["indexes"].as_array().unwrap().iter().map(|it| &it["recall"]);
    let recall = recalls.find(|it| !it.is_null()).unwrap();
    assert_eq!(recall["settings"], tuned["settings"]);
    let shown = run(&["describe", "words", "--endpoint", &up.endpoint]);
    assert!(shown.contains("recall of searches without a filter by vector_vector"), "{shown}");
    let measured = up.json(&["bench", "search", "words", "--recall", "0.9", "--seconds", "1"]);
    assert_eq!(measured[0]["request"]["recall"], 0.9);
    up.names(&["search", "words", "--like", "x", "--recall", "2"], 2, "between 0 and 1");

    // A file with too many questions is refused.
    let asked = up.folder.path().join("asked.parquet");
    let asked = text(&asked);
    std::fs::copy(crate::sample(), asked).unwrap();
    let several = bireme(&["tune", "words", "--output", text(&file), "--questions", asked]);
    let said = String::from_utf8(several.stderr).unwrap();
    assert!(said.contains("more than 2000 vectors; give fewer"), "{said}");
}
