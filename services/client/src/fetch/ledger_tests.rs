//! Tests of the ledger: which messages it sends after given events.

use std::time::Duration;

use arrow_schema::{DataType, Field, Schema};
use wire::schema_to_bytes;

use super::*;
use crate::fetch::state::{QueuePlace, StreamState};

type Answered = oneshot::Receiver<Result<RawReply, Fault>>;

fn ledger(credit_rows: u32, batch_rows_max: u32, projections_max: usize) -> Ledger {
    let welcome = Welcome { credit_rows, batch_rows_max, ..Default::default() };
    Ledger::new(&welcome, projections_max)
}

fn projection(table: &str) -> Arc<ProjectionKey> {
    Arc::new(ProjectionKey {
        table_uri: table.into(),
        version: 1,
        columns: vec!["x".into()],
        ..ProjectionKey::default()
    })
}

fn fetch(ledger: &mut Ledger, id: u64, table: &str, rows: u64, now: Instant) -> Answered {
    let context = FetchContext::from(now + Duration::from_millis(5));
    fetch_with(ledger, id, table, rows, now, context)
}

fn fetch_with(
    ledger: &mut Ledger,
    id: u64,
    table: &str,
    rows: u64,
    now: Instant,
    context: FetchContext,
) -> Answered {
    let (job, answered) = job(id, table, rows, now, context);
    ledger.admit(Command::Fetch(Box::new(job)));
    answered
}

fn job(id: u64, table: &str, rows: u64, now: Instant, context: FetchContext) -> (Job, Answered) {
    let place =
        QueuePlace::take(&Arc::new(StreamState::new(Arc::default(), 1)), context.flow).unwrap();
    let (answer, answered) = oneshot::channel();
    let (projection, row_addrs, rerank) = (projection(table), (0..rows).collect(), None);
    let job = Job {
        id,
        projection,
        row_addrs,
        rerank,
        predicate: None,
        context,
        asked: now,
        opening: Arc::default(),
        _place: place,
        answer,
    };
    (job, answered)
}

fn opened(ledger: &mut Ledger, handle: u32) {
    let schema = Schema::new(vec![Field::new("x", DataType::Int8, false)]);
    let schema = schema_to_bytes(&schema).unwrap();
    ledger.on_opened(Opened { handle, schema, error: None }).unwrap();
}

fn reply(ledger: &mut Ledger, id: u64) {
    ledger.on_reply(Reply { id, ..Default::default() }, Instant::now()).unwrap();
}

/// Returns, as text, the messages that may be sent now: `open 1 t`, `batches 1:7 2:7` (id and rows of each batch).
fn sent(ledger: &mut Ledger, now: Instant) -> Vec<String> {
    let mut all = Vec::new();
    while ledger.has_message() {
        match ledger.next_message(now) {
            None => {}
            Some(Kind::Open(open)) => all.push(format!("open {} {}", open.handle, open.table_uri)),
            Some(Kind::Close(close)) => all.push(format!("close {}", close.handle)),
            Some(Kind::Cancel(cancel)) => all.push(format!("cancel {}", cancel.id)),
            Some(Kind::Batches(Batches { batches })) => {
                let one = |b: &Batch| format!(" {}:{}", b.id, b.row_addrs.len());
                all.push(format!("batches{}", batches.iter().map(one).collect::<String>()));
            }
        }
    }
    all
}

#[test]
fn a_batch_that_waits_for_an_open_is_marked() {
    let (mut ledger, now) = (ledger(10, 10, 4), Instant::now());
    let (job, mut answered) =
        job(7, "t", 2, now, FetchContext::from(now + Duration::from_millis(5)));
    let opening = Arc::clone(&job.opening);
    ledger.admit(Command::Fetch(Box::new(job)));
    assert!(opening.load(Relaxed));
    // Its deadline passes before it can be sent.
    opened(&mut ledger, 1);
    sent(&mut ledger, now + Duration::from_secs(1));
    let fault = answered.try_recv().unwrap().err().unwrap();
    assert!(fault.metadata.contains_key(OPENING), "{fault:?}");
}

#[test]
fn batches_wait_for_their_projection_and_leave_together() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 50, 4));
    let _a = fetch(&mut ledger, 1, "t", 10, now);
    let _b = fetch(&mut ledger, 2, "t", 20, now);
    assert_eq!(sent(&mut ledger, now), ["open 1 t"]);
    opened(&mut ledger, 1);
    let _c = fetch(&mut ledger, 3, "t", 1, now);
    assert_eq!(sent(&mut ledger, now), ["batches 1:10 2:20 3:1"]);
    assert_eq!(ledger.outstanding_rows(), 31);
}

#[test]
fn credit_goes_in_order_and_is_never_exceeded() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 60, 4));
    let _waiting: Vec<_> =
        [60, 50, 10].iter().zip(1..).map(|(&n, id)| fetch(&mut ledger, id, "t", n, now)).collect();
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    // There is credit for the third batch, but the second one comes first.
    assert_eq!(sent(&mut ledger, now), ["batches 1:60"]);
    reply(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, now), ["batches 2:50 3:10"]);
    assert_eq!(ledger.outstanding_rows(), 60);
}

#[test]
fn a_cancelled_batch_is_cancelled_where_it_is() {
    let (now, mut ledger) = (Instant::now(), ledger(10, 10, 4));
    let parked = fetch(&mut ledger, 1, "t", 10, now);
    ledger.cancel(1);
    drop(parked);
    let _b = fetch(&mut ledger, 2, "t", 10, now);
    let _c = fetch(&mut ledger, 3, "t", 10, now);
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, now), ["batches 2:10"]);
    ledger.cancel(2);
    ledger.cancel(3);
    assert_eq!(sent(&mut ledger, now), ["cancel 2"]);
    // The credit of batch 2 is returned with its reply, not before.
    assert_eq!(ledger.outstanding_rows(), 10);
    reply(&mut ledger, 2);
    assert_eq!((ledger.outstanding_rows(), ledger.has_message()), (0, false));
}

#[test]
fn a_batch_past_its_deadline_is_not_sent() {
    let (now, mut ledger) = (Instant::now(), ledger(10, 10, 4));
    let mut late = fetch(&mut ledger, 1, "t", 10, now - Duration::from_millis(5));
    let _b = fetch(&mut ledger, 2, "t", 10, now);
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, now), ["batches 2:10"]);
    let answer = late.try_recv().unwrap();
    assert_eq!(answer.err().unwrap().reason, Reason::DeadlineExceeded);
}

#[test]
fn the_projection_least_recently_used_is_closed_unless_in_use() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 100, 2));
    let _a = fetch(&mut ledger, 1, "a", 1, now);
    let _b = fetch(&mut ledger, 2, "b", 1, now);
    sent(&mut ledger, now);
    let mut full = fetch(&mut ledger, 3, "c", 1, now);
    assert_eq!(full.try_recv().unwrap().err().unwrap().reason, Reason::Overloaded);
    opened(&mut ledger, 1);
    opened(&mut ledger, 2);
    sent(&mut ledger, now);
    reply(&mut ledger, 1);
    reply(&mut ledger, 2);
    let _a = fetch(&mut ledger, 4, "a", 1, now);
    let _c = fetch(&mut ledger, 5, "c", 1, now);
    assert_eq!(sent(&mut ledger, now), ["close 2", "open 3 c", "batches 4:1"]);
}

#[test]
fn an_outdated_projection_is_opened_anew_and_closed_once_no_batch_uses_it() {
    let (now, mut ledger) = (Instant::now(), ledger(3, 3, 3));
    let open_anew = |ledger: &mut Ledger| ledger.admit(Command::OpenAnew(projection("a")));
    let _a = fetch(&mut ledger, 1, "a", 3, now);
    open_anew(&mut ledger);
    let _b = fetch(&mut ledger, 2, "a", 3, now);
    assert_eq!(sent(&mut ledger, now), ["open 1 a"], "it is being opened already");
    opened(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, now), ["batches 1:3"]);
    open_anew(&mut ledger);
    open_anew(&mut ledger);
    let _c = fetch(&mut ledger, 3, "a", 3, now);
    assert_eq!(sent(&mut ledger, now), ["open 2 a"]);
    opened(&mut ledger, 2);
    reply(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, now), ["batches 2:3"], "a batch of the first handle");
    reply(&mut ledger, 2);
    assert_eq!(sent(&mut ledger, now), ["close 1", "batches 3:3"]);
    reply(&mut ledger, 3);
    open_anew(&mut ledger);
    assert_eq!(sent(&mut ledger, now), ["close 2"]);
    let _d = fetch(&mut ledger, 4, "a", 3, now);
    assert_eq!(sent(&mut ledger, now), ["open 3 a"]);
}

#[test]
fn a_projection_that_cannot_be_opened_fails_what_waits_for_it() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 100, 2));
    let mut a = fetch(&mut ledger, 1, "a", 1, now);
    assert_eq!(sent(&mut ledger, now), ["open 1 a"]);
    let fault = Fault::new(Reason::TableNotFound, "no table at a");
    let error = Some(fault.clone().into());
    ledger.on_opened(Opened { handle: 1, schema: Default::default(), error }).unwrap();
    assert_eq!(a.try_recv().unwrap().err(), Some(fault));
    assert_eq!(sent(&mut ledger, now), ["close 1"], "the node has the handle until it is closed");
    assert!(ledger.on_opened(Opened { handle: 1, ..Default::default() }).is_err());
    assert!(ledger.on_reply(Reply { id: 1, ..Default::default() }, now).is_err());
}

#[test]
fn a_broken_stream_fails_everything_and_a_batch_too_large_is_refused() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 10, 2));
    let mut large = fetch(&mut ledger, 1, "a", 11, now);
    // The caller halves a batch that is refused for this reason.
    assert_eq!(large.try_recv().unwrap().err().unwrap().reason, Reason::TooLarge);
    let mut outstanding = fetch(&mut ledger, 2, "a", 10, now);
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    sent(&mut ledger, now);
    let mut ready = fetch(&mut ledger, 3, "a", 10, now);
    let mut parked = fetch(&mut ledger, 4, "b", 10, now);
    let fault = Fault::new(Reason::NodeUnavailable, "gone");
    ledger.fail(&fault);
    for answered in [&mut outstanding, &mut ready, &mut parked] {
        assert_eq!(answered.try_recv().unwrap().err(), Some(fault.clone()));
    }
}

#[test]
fn waits_for_credit_are_timed_and_counted() {
    let (start, mut ledger) = (Instant::now(), ledger(10, 10, 4));
    let at = |ms| start + Duration::from_millis(ms);
    let ask = |ledger: &mut Ledger, id, rows, ms| {
        let answered = fetch(ledger, id, "t", rows, at(ms));
        ledger.check_credit(|| at(ms));
        answered
    };
    let _a = ask(&mut ledger, 1, 10, 0);
    sent(&mut ledger, at(0));
    opened(&mut ledger, 1);
    ledger.check_credit(|| panic!("there is credit"));
    assert_eq!(sent(&mut ledger, at(0)), ["batches 1:10"]);
    // The first batch uses the whole credit of ten rows.
    let mut b = ask(&mut ledger, 2, 6, 1);
    let mut c = ask(&mut ledger, 3, 6, 2);
    assert_eq!((sent(&mut ledger, at(3)), ledger.take_waits()), (vec![], CreditWaits::default()));
    reply(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, at(3)), ["batches 2:6"]);
    assert_eq!(ledger.take_waits(), CreditWaits { batches: 1, time: Duration::from_millis(2) });
    reply(&mut ledger, 2);
    assert_eq!(sent(&mut ledger, at(4)), ["batches 3:6"]);
    assert_eq!(ledger.take_waits(), CreditWaits { batches: 1, time: Duration::from_millis(2) });
    reply(&mut ledger, 3);
    let timeline = |answered: &mut Answered| answered.try_recv().unwrap().unwrap().timeline;
    let (b, c) = (timeline(&mut b), timeline(&mut c));
    assert_eq!((b.asked, b.without_credit, b.sent), (at(1), Some((at(1), at(3))), at(3)));
    assert_eq!((c.asked, c.without_credit, c.sent), (at(2), Some((at(2), at(4))), at(4)));
    // There is credit again.
    let mut d = ask(&mut ledger, 4, 6, 4);
    assert_eq!(sent(&mut ledger, at(4)), ["batches 4:6"]);
    reply(&mut ledger, 4);
    let waits = ledger.take_waits();
    assert_eq!((timeline(&mut d).without_credit, waits), (None, CreditWaits::default()));
}

#[test]
fn a_wait_for_credit_ends_when_there_is_credit_however_long_the_connection_takes() {
    let (start, mut ledger) = (Instant::now(), ledger(10, 10, 4));
    let at = |ms| start + Duration::from_millis(ms);
    let _a = fetch(&mut ledger, 1, "t", 10, at(0));
    sent(&mut ledger, at(0));
    opened(&mut ledger, 1);
    assert_eq!(sent(&mut ledger, at(0)), ["batches 1:10"]);
    let mut b = fetch(&mut ledger, 2, "t", 6, at(1));
    ledger.check_credit(|| at(1));
    reply(&mut ledger, 1);
    ledger.check_credit(|| at(2));
    ledger.check_credit(|| panic!("its end is known"));
    let mut c = fetch(&mut ledger, 3, "t", 4, at(3));
    // The connection takes a message only now.
    assert_eq!(sent(&mut ledger, at(4)), ["batches 2:6 3:4"]);
    assert_eq!(ledger.take_waits(), CreditWaits { batches: 1, time: Duration::from_millis(1) });
    reply(&mut ledger, 2);
    reply(&mut ledger, 3);
    let timeline = |answered: &mut Answered| answered.try_recv().unwrap().unwrap().timeline;
    let (b, c) = (timeline(&mut b), timeline(&mut c));
    assert_eq!((b.without_credit, b.sent), (Some((at(1), at(2))), at(4)));
    assert_eq!((c.without_credit, c.sent), (None, at(4)));
}

/// Returns the context of a fetch that belongs to a flow.
fn in_flow(id: u64, weight: u32, now: Instant) -> FetchContext {
    let flow = Flow::new(id, weight);
    FetchContext { flow, ..FetchContext::from(now + Duration::from_millis(5)) }
}

#[test]
fn flows_get_credit_in_turns_and_none_more_than_its_share() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 100, 4));
    let [a, b] = [in_flow(1, 1, now), in_flow(2, 3, now)];
    let mut answers = Vec::new();
    let mut ask = |ledger: &mut Ledger, id, context| {
        answers.push(fetch_with(ledger, id, "t", 10, now, context));
    };
    ask(&mut ledger, 1, a);
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    (2..=20).for_each(|id| ask(&mut ledger, id, a));
    // A single flow gets all credit.
    let first: String = (1..=10).map(|id| format!(" {id}:10")).collect();
    assert_eq!(sent(&mut ledger, now), [format!("batches{first}")]);
    (21..=30).for_each(|id| ask(&mut ledger, id, b));
    // A flow that comes later gets the credit of batches that are answered.
    for (id, next) in [(1, 21), (2, 22), (3, 23), (4, 24), (5, 25)] {
        reply(&mut ledger, id);
        assert_eq!(sent(&mut ledger, now), [format!("batches {next}:10")]);
    }
    // Both flows get credit up to their shares of 25 and 75 rows. The last 10 rows of credit stay unused, because
    // another batch of 10 rows fits in neither share.
    (6..=10).for_each(|id| reply(&mut ledger, id));
    assert_eq!(sent(&mut ledger, now), ["batches 11:10 26:10 27:10 12:10"]);
    assert_eq!(ledger.outstanding_rows(), 90);
}

#[test]
fn batches_carry_their_flow() {
    let (now, mut ledger) = (Instant::now(), ledger(100, 100, 4));
    let contexts = [in_flow(7, 3, now), in_flow(0, 9, now), in_flow(8, 5000, now)];
    let asks = (1..).zip(contexts);
    let _answers: Vec<_> =
        asks.map(|(id, context)| fetch_with(&mut ledger, id, "t", 1, now, context)).collect();
    sent(&mut ledger, now);
    opened(&mut ledger, 1);
    let Some(Kind::Batches(Batches { mut batches })) = ledger.next_message(now) else { panic!() };
    batches.sort_unstable_by_key(|batch| batch.id);
    let flows: Vec<_> = batches.iter().map(|batch| (batch.flow, batch.weight)).collect();
    assert_eq!(flows, [(7, 3), (0, 1), (8, 1000)]);
}
