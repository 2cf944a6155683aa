//! Decode: validates a batch from the wire and turns it into a request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use address::{RowAddr, without};
use distance::{Metric, Query};
use predicate::{Evaluator, PredicateError, STEPS_MAX, Step};
use scheduler::{Flow, Priority};
use tokio::time::Instant;
use wire::fetch::{Batch, Predicate, PredicateOp, PredicateStep, Rerank};
use wire::{DEADLINE_MAX, Fault, ParentSpan, Reason};

use super::Core;
use super::admit::admit;
use super::requests::{Request, RequestTimes};
use super::rerank::{QueryVector, RerankBy};
use crate::shard::{HeldBytes, SessionNo};
use crate::table::{OpenTable, Projection};

/// Checks a batch, which arrived at `arrived`, against its projection and the node's bounds, and finds which of its
/// rows exist.
///
/// # Errors
/// The batch is empty or has too many rows, its priority is unknown, it has both a rerank and a predicate, one of these
/// is invalid or does not fit the columns, or the batch was shed.
pub fn decode(
    core: &Core,
    session: SessionNo,
    projection: Arc<Projection>,
    batch: Batch,
    arrived: Instant,
) -> Result<Request, Fault> {
    let config = &core.node.config;
    if batch.row_addrs.is_empty() {
        let what = "the batch has no row addresses; send at least one";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    if batch.row_addrs.len() > config.batch_rows_max as usize {
        let (rows, max) = (batch.row_addrs.len(), config.batch_rows_max);
        let what = format!("a batch of {rows} rows; at most {max} fit, send several");
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let priority = match wire::fetch::Priority::try_from(batch.priority) {
        Ok(wire::fetch::Priority::Unspecified | wire::fetch::Priority::Interactive) => {
            Priority::Interactive
        }
        Ok(wire::fetch::Priority::Batch) => Priority::Batch,
        Err(_) => {
            let what = format!("priority {} is neither interactive nor batch", batch.priority);
            return Err(Fault::new(Reason::BadArgument, what));
        }
    };
    let deadline = deadline(arrived, batch.timeout_us);
    let flow = Flow::new(batch.flow, batch.weight);
    admit(core, batch.row_addrs.len(), (flow, priority), deadline)?;
    if batch.rerank.is_some() && batch.predicate.is_some() {
        let what = "the batch has a rerank and a predicate; send two batches";
        return Err(Fault::new(Reason::BadArgument, what));
    }
    let rerank = batch.rerank.map(|rerank| decode_rerank(&projection, rerank)).transpose()?;
    let predicate = batch.predicate.map(|predicate| decode_predicate(&projection, predicate));
    let predicate = predicate.transpose()?;
    let missing = missing(&projection.table, &batch.row_addrs);
    let present =
        (!missing.is_empty()).then(|| without(0..batch.row_addrs.len() as u32, &missing).collect());
    let parts = projection.parts.len();
    core.histograms.batch_rows.record(batch.row_addrs.len() as u64);
    Ok(Request {
        session,
        batch_id: batch.id,
        addrs: batch.row_addrs,
        present,
        missing,
        rerank,
        predicate,
        priority,
        flow,
        span: ParentSpan::parse(&batch.traceparent).map(|parent| core.node.tracer.admit(parent)),
        deadline,
        sources: vec![Vec::new(); parts],
        images: (0..parts).map(|_| None).collect(),
        undelivered: vec![BTreeSet::new(); parts],
        gather: None,
        held: HeldBytes::default(),
        images_held: HeldBytes::default(),
        reply_held: None,
        reply_bytes: 0,
        pieces_left: 0,
        images_left: 0,
        table_reads: Vec::new(),
        times: RequestTimes::new(arrived),
        projection,
    })
}

/// Returns the deadline of a batch that arrived at `arrived`. A timeout of 0 stands for the maximum.
fn deadline(arrived: Instant, timeout_us: u64) -> Instant {
    let timeout = match timeout_us {
        0 => DEADLINE_MAX,
        timeout => Duration::from_micros(timeout).min(DEADLINE_MAX),
    };
    arrived + timeout
}

/// Returns the indexes in `addrs`, ascending, of the addresses at which the version has no row.
fn missing(table: &OpenTable, addrs: &[u64]) -> Vec<u32> {
    let is_missing = |&raw: &u64| {
        let addr = RowAddr::from_u64(raw);
        !table.fragment(addr.fragment()).is_some_and(|fragment| fragment.has(addr.offset()))
    };
    (0u32..).zip(addrs).filter(|(_, addr)| is_missing(addr)).map(|(at, _)| at).collect()
}

fn decode_rerank(projection: &Projection, rerank: Rerank) -> Result<RerankBy, Fault> {
    let bad = |what: String| Fault::new(Reason::BadVector, what);
    let [part] = projection.parts.as_slice() else {
        return Err(bad("rerank needs a projection of the one vector column".into()));
    };
    let layout = &projection.pack(part).layout;
    let column = &projection.pack(part).columns[part.columns[0]];
    let vector = layout.vector_type().filter(|_| part.columns.len() == 1).ok_or_else(|| {
        bad(format!("column `{column}` is not stored as vectors by itself; rerank can't use it"))
    })?;
    if rerank.vector.len() != vector.dimension * size_of::<f32>() {
        return Err(bad(format!(
            "the query vector has {} bytes; column `{column}` has {} dimensions of 4 bytes",
            rerank.vector.len(),
            vector.dimension
        )));
    }
    let metric = match wire::fetch::Metric::try_from(rerank.metric) {
        Ok(wire::fetch::Metric::L2) => Metric::L2,
        Ok(wire::fetch::Metric::Cosine) => Metric::Cosine,
        Ok(wire::fetch::Metric::Dot) => Metric::Dot,
        Ok(wire::fetch::Metric::Unspecified) | Err(_) => {
            let what = format!("metric {} is none of L2, cosine and dot", rerank.metric);
            return Err(Fault::new(Reason::BadArgument, what));
        }
    };
    if rerank.k == 0 {
        return Err(Fault::new(Reason::BadArgument, "k is 0; ask for at least one row"));
    }
    let values: Vec<f32> = rerank
        .vector
        .chunks_exact(size_of::<f32>())
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    if values.iter().any(|v| !v.is_finite()) {
        return Err(bad("the query vector has a NaN or an infinity; send finite numbers".into()));
    }
    let query = QueryVector::new(Query::new(values, metric), vector.element);
    Ok(RerankBy { query, k: rerank.k as usize })
}

/// Checks a predicate against the columns of its projection.
fn decode_predicate(projection: &Projection, predicate: Predicate) -> Result<Evaluator, Fault> {
    let bad = |error: PredicateError| Fault::new(Reason::BadArgument, error.to_string());
    // Checked before the steps are decoded: a step may have only two bytes in the batch, but takes many more as a
    // `Step`.
    if predicate.steps.len() > STEPS_MAX {
        return Err(bad(PredicateError::TooManySteps(predicate.steps.len())));
    }
    let steps = predicate.steps.into_iter().enumerate().map(
        |(at, PredicateStep { op, column, values })| {
            let column = column as usize;
            let only = || match values.as_slice() {
                [value] => Ok(value.clone()),
                _ => Err(bad(PredicateError::WrongValues { step: at, values: values.len() })),
            };
            Ok(match PredicateOp::try_from(op) {
                Ok(PredicateOp::In) => Step::In { column, values },
                Ok(PredicateOp::Less) => Step::Less { column, value: only()? },
                Ok(PredicateOp::Greater) => Step::Greater { column, value: only()? },
                Ok(PredicateOp::IsNull) => Step::IsNull { column },
                Ok(PredicateOp::Not) => Step::Not,
                Ok(PredicateOp::And) => Step::And,
                Ok(PredicateOp::Or) => Step::Or,
                Ok(PredicateOp::Unspecified) | Err(_) => {
                    let what = format!("operation {op} in step {at} of the predicate is unknown");
                    return Err(Fault::new(Reason::BadArgument, what));
                }
            })
        },
    );
    let steps = steps.collect::<Result<Vec<_>, _>>()?;
    let types: Vec<_> = projection.schema.fields().iter().map(|field| field.data_type()).collect();
    Evaluator::new(&steps, &types).map_err(bad)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_deadline_exceeds_the_maximum() {
        let arrived = Instant::now();
        let timeout = |timeout_us| deadline(arrived, timeout_us) - arrived;
        let max_us = DEADLINE_MAX.as_micros() as u64;
        assert_eq!(timeout(1), Duration::from_micros(1));
        assert_eq!(timeout(max_us - 1), DEADLINE_MAX - Duration::from_micros(1));
        for timeout_us in [0, max_us, max_us + 1, u64::MAX] {
            assert_eq!(timeout(timeout_us), DEADLINE_MAX, "{timeout_us}");
        }
    }
}
