//! Which keys of an array have a row.

use std::ops::Range;

use arrow_array::{Array, ArrayRef};
use futures::{StreamExt, stream};
use tokio::time::{Instant, sleep_until};
use wire::{Fault, Reason};

use super::append::REFUSED_MAX;
use super::keys::keys_of;
use super::lasting_lookup::{LastingLookup, LookupFailure};
use super::lookup::{LookedUp, Lookup};

/// The number of keys that are looked up as one batch.
const BATCH_KEYS: usize = 1024;

/// The number of batches that are looked up at the same time.
const BATCHES_IN_FLIGHT: usize = 32;

/// The keys that were not found, and those that may have been found by mistake. Positions are ascending.
#[derive(Debug, Default)]
pub struct Presence {
    /// The positions of keys that no row has.
    pub not_found: Vec<u32>,
    /// The positions of keys that are in the key index, but were not compared with a row.
    pub unproven: Vec<u32>,
}

/// Looks up which of `keys` have a row. Batches of keys that are too large for a message are halved. Look-ups that a
/// node refuses because of load or a limit, or does not answer because it stops or the connection ends, are repeated,
/// for as long as the timeout of the projection, or [`REFUSED_MAX`], lasts without any success.
///
/// # Errors
/// `BAD_ARGUMENT` if the keys have nulls, or a type that can't be looked up; the errors of [`Lookup::get`].
pub async fn presence_of(lookup: &Lookup, keys: &ArrayRef) -> Result<Presence, Fault> {
    let lookup = &LastingLookup::new(lookup.clone());
    let starts = (0..keys.len()).step_by(BATCH_KEYS);
    let looked_up = starts.map(|start| async move {
        let part = start..keys.len().min(start + BATCH_KEYS);
        let outcome = look_up(lookup, keys, &part).await;
        (part, outcome)
    });
    let mut looked_up = stream::iter(looked_up).buffered(BATCHES_IN_FLIGHT);
    let mut presence = Presence::default();
    // Parts are halved and looked up again when it is their turn: a node that refuses batches gets one at a time.
    while let Some((part, outcome)) = looked_up.next().await {
        presence.add(lookup, keys, part, outcome).await?;
    }
    Ok(presence)
}

async fn look_up(
    lookup: &LastingLookup,
    keys: &ArrayRef,
    part: &Range<usize>,
) -> Result<LookedUp, LookupFailure> {
    lookup.get(keys_of(&keys.slice(part.start, part.len()))?).await
}

impl Presence {
    /// Adds the keys of `part`, whose first look-up had this outcome.
    async fn add(
        &mut self,
        lookup: &LastingLookup,
        keys: &ArrayRef,
        part: Range<usize>,
        outcome: Result<LookedUp, LookupFailure>,
    ) -> Result<(), Fault> {
        let refused_max = lookup.timeout().unwrap_or(REFUSED_MAX);
        let mut refused_until = Instant::now() + refused_max;
        // The parts that remain, the last one first.
        let (mut waiting, mut first) = (vec![part], Some(outcome));
        while let Some(part) = waiting.pop() {
            let outcome = match first.take() {
                Some(outcome) => outcome,
                None => look_up(lookup, keys, &part).await,
            };
            let LookupFailure { fault, retry_at } = match outcome {
                Ok(answer) => {
                    let start = part.start as u32;
                    self.not_found.extend(answer.not_found.iter().map(|at| start + at));
                    self.unproven.extend(answer.unproven.iter().map(|at| start + at));
                    refused_until = Instant::now() + refused_max;
                    continue;
                }
                Err(failure) => failure,
            };
            match retry_at {
                Some(at) if at <= refused_until => {
                    sleep_until(at).await;
                    waiting.push(part);
                }
                None if fault.reason == Reason::TooLarge && part.len() > 1 => {
                    let half = part.start + part.len() / 2;
                    waiting.push(half..part.end);
                    waiting.push(part.start..half);
                }
                _ => return Err(fault),
            }
        }
        Ok(())
    }
}
