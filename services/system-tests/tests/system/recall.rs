//! Measures recall curves of WordNet's vector index through both tiers. The recall that a curve gives for a setting is
//! compared with the recall of searches with that setting, which brute force determines.

use std::collections::HashSet;

use client::query::{QueryClient, SearchRequest, TuneRequest};
use futures::StreamExt;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use recall::{Curve, decode, encode};
use wire::Reason;
use wire::query::Vector;

use crate::cluster::{Cluster, folder, total};
use crate::words::{Words, by_vector, search, synsets, warm, words};

/// The number of fresh questions. Their mean recall has a standard error of 0.015 near 0.95.
const FRESH: usize = 40;

/// The recall that is asked for, and the minimum that fresh questions must find, about three standard errors below it.
const WANTED: f32 = 0.95;
const FOUND_MIN: f64 = 0.90;

/// Returns questions that equal no row: vectors of rows, with noise of at most a tenth of their length.
fn fresh(words: &Words) -> Vec<Vec<f32>> {
    let mut random = StdRng::seed_from_u64(11);
    let rows = words.keys().len();
    let question = |at: usize| {
        let vector = words.vector((at * rows / FRESH + 17) % rows);
        let squares: f32 = vector.iter().map(|value| value * value).sum();
        let noise = 0.1 * (squares / vector.len() as f32).sqrt();
        vector.iter().map(|value| value + noise * random.random_range(-1.0..1.0f32)).collect()
    };
    (0..FRESH).map(question).collect()
}

/// Returns the keys of the 10 nearest rows of each question, by brute force.
fn exact(words: &Words, questions: &[Vec<f32>]) -> Vec<HashSet<String>> {
    let keys = words.keys();
    let of = |question: &Vec<f32>| {
        words.nearest(question, 10).into_iter().map(|row| keys[row].clone()).collect()
    };
    questions.iter().map(of).collect()
}

async fn tuned(client: &QueryClient, request: TuneRequest) -> Curve {
    let steps: Vec<_> = client.tune(request).await.unwrap().collect().await;
    decode(&steps.last().unwrap().as_ref().unwrap().curve).unwrap()
}

/// Returns the share of the exact answers that searches find.
async fn recall(
    cluster: &Cluster,
    questions: &[Vec<f32>],
    exact: &[HashSet<String>],
    change: impl Fn(SearchRequest) -> SearchRequest,
) -> f64 {
    let mut found = 0;
    for (question, exact) in questions.iter().zip(exact) {
        let request = change(search(by_vector(question.clone())));
        let answer = cluster.client.search(request).await.unwrap();
        found += synsets(&answer.rows).iter().filter(|key| exact.contains(*key)).count();
    }
    found as f64 / (exact.len() * 10) as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_curve_says_what_searches_find_and_fresh_questions_reach_the_recall_that_they_ask_for() {
    let words = words().await;
    let (questions, cluster) = (fresh(words), words.serve(2).await);
    let exact = exact(words, &questions);
    warm(&cluster).await;
    let table = || TuneRequest { table: "words".into(), ..Default::default() };

    // The recall that a curve gives for its questions must be the recall that the same searches reach.
    let given = questions.iter().map(|it| Vector { values: it.clone() }).collect();
    let of_fresh = tuned(&cluster.client, TuneRequest { questions: given, ..table() }).await;
    let of_10 = of_fresh.of_k.iter().find(|it| it.k == 10).unwrap();
    let chosen = of_fresh.choose(10, 0.8).unwrap();
    let settings = [
        (of_10.default.recall, 20, 10),
        (chosen.point.recall, chosen.nprobes, chosen.refine_factor),
    ];
    for (said, nprobes, factor) in settings {
        let with = |it| SearchRequest { nprobes, refine_factor: Some(factor), ..it };
        let found = recall(&cluster, &questions, &exact, with).await;
        println!("nprobes {nprobes}, refine {factor}: recall@10 {found}, by the curve {said}");
        // Rows whose distances differ only by rounding may be in either answer.
        assert!((found - said).abs() < 0.01, "{found} {said}");
    }

    // To find the exact answers, the I/O nodes score every row for each question.
    let scored = async || {
        let mut rows = 0;
        for io in &cluster.io {
            rows += total(&io.describe().await, |core| core.rows);
        }
        rows
    };
    let before = scored().await;
    let curve = tuned(&cluster.client, TuneRequest { rows: 60, ..table() }).await;
    assert_eq!(curve.question_count, 60);
    let compared = 60 * words.keys().len() as u64;
    assert!(scored().await >= before + compared, "{compared} rows were to be compared");
    assert_eq!(cluster.query.fallback_rows(), 0);
    let fault = cluster
        .client
        .search(SearchRequest { recall: Some(WANTED), ..search(by_vector(questions[0].clone())) });
    assert_eq!(fault.await.unwrap_err().reason, Reason::RecallUnknown);
    cluster.stop().await;

    // A node that is given the curve takes the cheapest setting that reaches the recall.
    let folder = folder();
    let file = folder.path().join("words.curve");
    std::fs::write(&file, encode(&curve).unwrap()).unwrap();
    let cluster = Cluster::start_with(2, &[("words", &words.uri)], |_, config| {
        config.tables.get_mut("words").unwrap().recall_curves = vec![file.clone()];
    })
    .await;
    warm(&cluster).await;
    let setting = curve.choose(10, 0.95).unwrap();
    let found =
        recall(&cluster, &questions, &exact, |it| SearchRequest { recall: Some(WANTED), ..it })
            .await;
    println!("recall {WANTED}: {setting:?}; fresh questions find {found}");
    assert!(found >= FOUND_MIN, "{found}");
    cluster.stop().await;
}
