//! A limit on concurrent work, with a fair, bounded queue for a permit.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

use crate::fair_queue::{FairQueue, Priority};
use crate::flow::{Cost, Flow};
use crate::places::Places;

/// A fixed number of permits to run, and the work that waits for one. Flows get permits in proportion to their weights,
/// counted in the cost of their work: the more a flow's work costs, the longer the flow waits for its next permit.
#[derive(Debug)]
pub struct Permits(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    free: usize,
    waiting: FairQueue<Request>,
    places: Places,
    /// The number of places that batch work occupies, and its maximum.
    batch_places: (usize, usize),
}

/// Work that waits for a permit. The channel is closed once the work has stopped waiting.
#[derive(Debug)]
struct Request {
    cost: u32,
    permit: oneshot::Sender<Permit>,
}

impl Cost for Request {
    fn cost(&self) -> u32 {
        self.cost
    }
}

/// The right to run. When it is dropped, it passes to the next waiting work.
#[derive(Debug)]
pub struct Permit(Option<Arc<Permits>>);

/// The error if too much work waits for a permit already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// The number of pieces of work that wait.
    pub waiting: usize,
}

/// A future that completes with a permit. If it is dropped before, its place in the queue becomes free.
#[derive(Debug)]
pub struct Waiting {
    permit: oneshot::Receiver<Permit>,
    _place: Option<Place>,
}

/// A place in the queue.
#[derive(Debug)]
struct Place {
    permits: Arc<Permits>,
    flow: Flow,
    priority: Priority,
}

impl Permits {
    /// Creates `free` permits, and a queue in which at most `waiting_max` pieces of work wait for one. How many places
    /// a flow may occupy follows from [`has_room`](crate::has_room); batch work may occupy half of all places.
    pub fn new(free: usize, waiting_max: usize) -> Arc<Self> {
        let (waiting, places) = (FairQueue::default(), Places::new(waiting_max));
        let batch_places = (0, waiting_max.div_ceil(2));
        Arc::new(Self(Mutex::new(Queue { free, waiting, places, batch_places })))
    }

    /// Locks the queue. The lock is never held while work runs.
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a free permit, if there is one.
    pub fn take(self: &Arc<Self>) -> Option<Permit> {
        let mut queue = self.locked();
        queue.free = queue.free.checked_sub(1)?;
        Some(Permit(Some(Arc::clone(self))))
    }

    /// Queues for a permit, or takes one at once if one is free.
    ///
    /// # Errors
    /// [`Full`] if no place in the queue is left for this flow or this priority.
    pub fn wait(
        self: &Arc<Self>,
        cost: u32,
        flow: Flow,
        priority: Priority,
    ) -> Result<Waiting, Full> {
        let (next, permit) = oneshot::channel();
        let mut queue = self.locked();
        if queue.free > 0 {
            queue.free -= 1;
            drop(queue);
            let _ = next.send(Permit(Some(Arc::clone(self))));
            return Ok(Waiting { permit, _place: None });
        }
        let is_batch = usize::from(priority == Priority::Batch);
        let (batch, batch_max) = queue.batch_places;
        let full = Full { waiting: queue.places.taken() };
        if batch + is_batch > batch_max || !queue.places.take(flow) {
            return Err(full);
        }
        queue.batch_places.0 += is_batch;
        let request = Request { cost, permit: next };
        queue.waiting.push_after_cleaning(request, flow, priority, |it| !it.permit.is_closed());
        drop(queue);
        Ok(Waiting { permit, _place: Some(Place { permits: Arc::clone(self), flow, priority }) })
    }

    /// Returns the number of waiting pieces of work, of all flows.
    pub fn waiting(&self) -> usize {
        self.locked().places.taken()
    }

    /// Returns the number of waiting pieces of work of a flow.
    pub fn waiting_of(&self, flow: Flow) -> usize {
        self.locked().places.taken_by(flow)
    }

    /// Returns the number of free permits.
    pub fn free(&self) -> usize {
        self.locked().free
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(permits) = self.0.take() else { return };
        loop {
            let next = {
                let mut queue = permits.locked();
                let wanted = queue.waiting.pop_wanted(|it| !it.permit.is_closed());
                let Some(next) = wanted else {
                    queue.free += 1;
                    return;
                };
                next.permit
            };
            match next.send(Permit(Some(Arc::clone(&permits)))) {
                Ok(()) => return,
                // The work has stopped waiting just now. Empty the returned permit, so that its drop does nothing,
                // because this loop passes the permit on.
                Err(mut returned) => drop(returned.0.take()),
            }
        }
    }
}

impl Future for Waiting {
    type Output = Permit;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Permit> {
        // The sender is dropped only after it has sent a permit, or once this receiver was dropped.
        Pin::new(&mut self.permit).poll(cx).map(|permit| permit.expect("permits are not lost"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queue = self.permits.locked();
        queue.places.give_back(self.flow);
        queue.batch_places.0 -= usize::from(self.priority == Priority::Batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u64 = 1;
    const B: u64 = 2;

    /// Drops the permit `first`, and returns the ids of the waiting flows in the order in which they get it.
    async fn order_of(waiting: Vec<(u64, Waiting)>, first: Permit) -> Vec<u64> {
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks = waiting.into_iter().map(|(id, waiting)| {
            let order = Arc::clone(&order);
            tokio::spawn(async move {
                let _permit = waiting.await;
                order.lock().unwrap().push(id);
            })
        });
        let tasks: Vec<_> = tasks.collect();
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        order.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn permits_go_to_flows_in_proportion_to_their_weights_counted_in_rows() {
        let permits = Permits::new(1, 64);
        let first = permits.take().unwrap();
        assert!(permits.take().is_none());
        let ask = |id, weight, cost| {
            let flow = Flow::new(id, weight);
            (id, permits.wait(cost, flow, Priority::Interactive).unwrap())
        };
        // Four large pieces of work of one flow, and then twelve small pieces of another flow with twice the weight.
        let mut waiting: Vec<_> = (0..4).map(|_| ask(A, 1, 100)).collect();
        waiting.extend((0..12).map(|_| ask(B, 2, 50)));
        assert_eq!((permits.waiting(), permits.free()), (16, 0));
        assert_eq!(permits.waiting_of(Flow::new(B, 1)), 12);
        let order = order_of(waiting, first).await;
        assert_eq!(order, [A, B, B, B, B, A, B, B, B, B, A, B, B, B, B, A]);
        assert_eq!((permits.waiting(), permits.free()), (0, 1));
    }

    #[tokio::test]
    async fn work_that_stops_waiting_leaves_its_place_and_is_skipped() {
        let permits = Permits::new(1, 8);
        let flow = Flow::default();
        let first = permits.take().unwrap();
        let gone = permits.wait(1, flow, Priority::Interactive).unwrap();
        let next = permits.wait(1, flow, Priority::Interactive).unwrap();
        drop(gone);
        assert_eq!(permits.waiting(), 1);
        drop(first);
        let permit = next.await;
        assert_eq!((permits.waiting(), permits.free()), (0, 0));
        // If work stops waiting after a permit was sent to it, the permit is not lost: it becomes free again.
        let unclaimed = permits.wait(1, flow, Priority::Interactive).unwrap();
        drop(permit);
        drop(unclaimed);
        assert_eq!((permits.waiting(), permits.free()), (0, 1));
    }

    #[tokio::test]
    async fn a_flow_whose_work_stops_waiting_gets_its_share_of_the_permits() {
        let permits = Permits::new(1, 256);
        let first = permits.take().unwrap();
        let ask = |id| (id, permits.wait(1, Flow::new(id, 1), Priority::Interactive).unwrap());
        let of_a: Vec<_> = (0..64).map(|_| ask(A)).collect();
        let of_b: Vec<_> = (0..64).map(|_| ask(B)).collect();
        // Three of four pieces of work of the first flow stop waiting.
        let of_a = of_a.into_iter().step_by(4).collect::<Vec<_>>();
        let order = order_of(of_a.into_iter().chain(of_b).collect(), first).await;
        assert_eq!(order[..32].iter().filter(|&&id| id == A).count(), 16, "{order:?}");
        assert_eq!(order.len(), 80);
    }

    #[test]
    fn no_flow_and_no_class_takes_all_places() {
        let permits = Permits::new(0, 16);
        let (a, b) = (Flow::new(A, 1), Flow::new(B, 1));
        let fill = |flow, priority| {
            let waiting = std::iter::from_fn(|| permits.wait(1, flow, priority).ok());
            waiting.collect::<Vec<_>>()
        };
        let batch = fill(a, Priority::Batch);
        assert_eq!(batch.len(), 8);
        let flood = fill(a, Priority::Interactive);
        assert_eq!(flood.len(), 6);
        assert_eq!(permits.wait(1, a, Priority::Interactive).unwrap_err(), Full { waiting: 14 });
        assert_eq!(fill(b, Priority::Interactive).len(), 2);
    }
}
