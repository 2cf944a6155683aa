//! Bounds the searches, table reads and looks at placement that run at the same time, and says whose turn it is.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use wire::fetch::Priority;

use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;

/// One turn in so many is batch work's while interactive work waits, as on I/O nodes.
const BATCH_EVERY: usize = 8;

/// Two queues: one for work that begins on a core, such as a look-up by key or a search of open index partitions, and
/// one for work that Lance plans in the background. A filter may read a whole table, so one queue for both would let a
/// few of them keep every look-up waiting.
///
/// A search keeps its permit while it waits for index partitions that aren't cached: they are read
/// within Lance's search. Work that is abandoned keeps its permit until it has ended ([`Running`]).
pub struct AdmissionQueue {
    on_core: Lane,
    planned: Lane,
    background: Handle,
}

/// One queue. As many requests run at the same time as there are permits; a bounded number waits, in order of priority and
/// arrival.
struct Lane {
    permits: Arc<Permits>,
    waiting: AtomicUsize,
    batch_waiting: AtomicUsize,
    waiting_max: usize,
}

/// How many may begin, and who waits to.
struct Permits(Mutex<Queue>);

struct Queue {
    free: usize,
    /// Who has given up waiting is passed over.
    interactive: VecDeque<oneshot::Sender<Permit>>,
    batch: VecDeque<oneshot::Sender<Permit>>,
    /// Permits passed on so far, modulo [`BATCH_EVERY`].
    passed_on: usize,
}

/// The right to run, given to who is next when it is dropped.
struct Permit(Option<Arc<Permits>>);

impl Permits {
    /// The lock is not held while work runs.
    fn locked(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Now, if there is one left.
    fn take(self: &Arc<Self>) -> Option<Permit> {
        let mut queue = self.locked();
        queue.free = queue.free.checked_sub(1)?;
        Some(Permit(Some(Arc::clone(self))))
    }

    /// Now, or when its turn comes.
    fn wait(self: &Arc<Self>, priority: Priority) -> oneshot::Receiver<Permit> {
        let (next, permit) = oneshot::channel();
        let mut queue = self.locked();
        // One that was given back in between.
        if queue.free > 0 {
            queue.free -= 1;
            drop(queue);
            let _ = next.send(Permit(Some(Arc::clone(self))));
        } else {
            let of_priority = queue.waiting_at(priority);
            // Those that have given up are let go of now and then: looking at each is dear where many wait.
            if of_priority.len() == of_priority.capacity() {
                of_priority.retain(|waiting| !waiting.is_closed());
            }
            of_priority.push_back(next);
        }
        permit
    }
}

impl Queue {
    fn waiting_at(&mut self, priority: Priority) -> &mut VecDeque<oneshot::Sender<Permit>> {
        match priority {
            Priority::Batch => &mut self.batch,
            Priority::Unspecified | Priority::Interactive => &mut self.interactive,
        }
    }

    /// Whose turn it is.
    fn pop(&mut self) -> Option<oneshot::Sender<Permit>> {
        self.passed_on = (self.passed_on + 1) % BATCH_EVERY;
        match self.passed_on {
            0 => self.batch.pop_front().or_else(|| self.interactive.pop_front()),
            _ => self.interactive.pop_front().or_else(|| self.batch.pop_front()),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(permits) = self.0.take() else { return };
        loop {
            let next = {
                let mut queue = permits.locked();
                let Some(next) = queue.pop() else {
                    queue.free += 1;
                    return;
                };
                next
            };
            match next.send(Permit(Some(Arc::clone(&permits)))) {
                Ok(()) => return,
                // It has given up; this permit is passed on here.
                Err(mut refused) => drop(refused.0.take()),
            }
        }
    }
}

impl AdmissionQueue {
    /// Of each queue `concurrency` run and `waiting_max` wait, of them half at most for batch work. `background` has
    /// threads for what would keep a core from its connections.
    pub fn new(concurrency: usize, waiting_max: usize, background: Handle) -> Self {
        let lane = || Lane::new(concurrency, waiting_max);
        Self { on_core: lane(), planned: lane(), background }
    }

    /// How many wait now in the longer queue, to be held against the most that may.
    pub fn waiting(&self) -> usize {
        let waiting = |lane: &Lane| lane.waiting.load(Ordering::Relaxed);
        waiting(&self.on_core).max(waiting(&self.planned))
    }

    /// Runs `work` on this core when its turn comes; work past its deadline isn't begun.
    ///
    /// # Errors
    /// [`QueryError::Overloaded`] when too many wait, [`QueryError::DeadlinePassed`].
    pub async fn run_on_core<T>(
        &self,
        during: &'static str,
        context: RequestContext,
        work: BoxFuture<'_, Result<T>>,
    ) -> Result<T> {
        let running = Running::new(self, self.on_core.permit(during, context).await?);
        let done = context.bound(during, work).await;
        if !matches!(done, Err(QueryError::DeadlinePassed { .. })) {
            running.ended();
        }
        done
    }

    /// The same in the background: for what Lance plans, and whatever else may take milliseconds of CPU.
    ///
    /// # Errors
    /// As [`run_on_core`](Self::run_on_core).
    pub async fn run_in_background<T: Send + 'static>(
        &self,
        during: &'static str,
        context: RequestContext,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let permit = self.planned.permit(during, context).await?;
        context.bound(during, self.spawn(permit, work).boxed()).await
    }

    /// Begins `work` on this core when its turn comes; if it has to wait for anything it goes on in the background.
    /// For what needs little CPU and nearly always no I/O, but can't tell beforehand: handing a look-up over took a
    /// caller alone 0.2 ms, more than the look-up. A panic is a [`QueryError::Server`], as in the background.
    ///
    /// # Errors
    /// As [`run_on_core`](Self::run_on_core).
    pub async fn begin_on_core<T: Send + 'static>(
        &self,
        during: &'static str,
        context: RequestContext,
        mut work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let permit = self.on_core.permit(during, context).await?;
        // Whoever polls it next is woken.
        match AssertUnwindSafe(&mut work).catch_unwind().now_or_never() {
            Some(done) => done.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))),
            None => context.bound(during, self.spawn(permit, work).boxed()).await,
        }
    }

    /// Runs `work` in the background, and gives `permit` back; a panic is a [`QueryError::Server`].
    async fn spawn<T: Send + 'static>(
        &self,
        permit: Permit,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let running = Running::new(self, permit);
        let work = async move {
            let done = AssertUnwindSafe(work).catch_unwind().await;
            running.ended();
            done.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
        };
        // Aborted with the set when the caller goes.
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.background);
        match task.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(error)) => Err(QueryError::Server(error.to_string())),
            None => Err(QueryError::Server("a task is gone".into())),
        }
    }
}

impl Lane {
    fn new(concurrency: usize, waiting_max: usize) -> Self {
        let (interactive, batch) = Default::default();
        let queue = Queue { free: concurrency, interactive, batch, passed_on: 0 };
        let permits = Arc::new(Permits(Mutex::new(queue)));
        let (waiting, batch_waiting) = Default::default();
        Self { permits, waiting, batch_waiting, waiting_max }
    }

    async fn permit(&self, during: &'static str, context: RequestContext) -> Result<Permit> {
        let permit = match self.permits.take() {
            Some(permit) => permit,
            None => {
                let _place = QueuePlace::take(self, context.priority())?;
                let permit = self.permits.wait(context.priority());
                // A permit is sent before its sender goes.
                let lost = |_| QueryError::Server("a permit was lost; this is a defect".into());
                let permit = async { permit.await.map_err(lost) };
                context.bound(during, permit.boxed()).await?
            }
        };
        context.check(during)?;
        Ok(permit)
    }
}

/// The permit of work that was begun, dropped with the work. If that happens before [`ended`](Self::ended), because the
/// deadline passed or the caller went, the permit is given back only when the work has really ended.
///
/// A kernel that computes can't be interrupted: a task that is aborted goes on until it next waits, and what it has
/// given to Lance's CPU pool is run to its end. With a permit given back earlier, callers with short deadlines would
/// make any number of them.
struct Running {
    background: Handle,
    permit: Option<Permit>,
}

impl Running {
    fn new(admission: &AdmissionQueue, permit: Permit) -> Self {
        Self { background: admission.background.clone(), permit: Some(permit) }
    }

    fn ended(mut self) {
        self.permit = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.background.spawn(async move {
                lake::cpu_pool_drained().await;
                drop(permit);
            });
        }
    }
}

/// What panicked work is answered with.
fn panicked(panic: &(dyn Any + Send)) -> QueryError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    QueryError::Server(format!("panicked: {}", text.unwrap_or("without a message")))
}

/// A place in the queue, given up when dropped.
struct QueuePlace<'a> {
    lane: &'a Lane,
    is_batch: bool,
}

impl<'a> QueuePlace<'a> {
    fn take(lane: &'a Lane, priority: Priority) -> Result<Self> {
        let is_batch = priority == Priority::Batch;
        let waiting = lane.waiting.fetch_add(1, Ordering::Relaxed);
        let batch = lane.batch_waiting.fetch_add(usize::from(is_batch), Ordering::Relaxed);
        let place = Self { lane, is_batch };
        let has_room =
            waiting < lane.waiting_max && (!is_batch || batch < lane.waiting_max.div_ceil(2));
        if has_room { Ok(place) } else { Err(QueryError::Overloaded { waiting }) }
    }
}

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.lane.waiting.fetch_sub(1, Ordering::Relaxed);
        self.lane.batch_waiting.fetch_sub(usize::from(self.is_batch), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::Duration;

    use tokio::runtime::Builder;
    use tokio::time::Instant;

    use super::*;

    async fn becomes_free(lane: &Lane) {
        while lane.permits.locked().free == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn abandoned_work_keeps_its_permit_until_it_has_ended() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let soon = || RequestContext::after(Duration::from_millis(50));
        let began = Instant::now();
        // It computes, and looks at nothing meanwhile.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let computing = async move {
            held.recv().unwrap();
            Ok(1)
        };
        let late = admission.run_in_background("search", soon(), computing.boxed()).await;
        assert!(matches!(late, Err(QueryError::DeadlinePassed { during: "search" })), "{late:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "answered after {:?}", began.elapsed());
        // Newcomers wait within their own deadlines, and the queue stays bounded.
        let next = || admission.run_in_background("search", soon(), async { Ok(2) }.boxed());
        let (waited, refused) = tokio::join!(next(), next());
        assert!(matches!(waited, Err(QueryError::DeadlinePassed { .. })), "{waited:?}");
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })), "{refused:?}");
        assert_eq!((admission.planned.permits.locked().free, admission.waiting()), (0, 0));
        // What begins on a core does not wait for planned work.
        let work = async { Ok(3) }.boxed();
        assert_eq!(admission.run_on_core("search", soon(), work).await.unwrap(), 3);
        hold.send(()).unwrap();
        becomes_free(&admission.planned).await;
        assert_eq!(next().await.unwrap(), 2);
        background.shutdown_background();
    }

    #[tokio::test]
    async fn work_that_its_caller_leaves_is_aborted_and_gives_its_permit_back() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let later = RequestContext::after(Duration::from_secs(10));
        for is_here in [true, false] {
            let (alive, mut ended) = oneshot::channel::<()>();
            let endless = async move {
                let _alive = alive;
                std::future::pending::<Result<()>>().await
            };
            let endless = endless.boxed();
            let begun = match is_here {
                true => admission.run_on_core("search", later, endless).now_or_never(),
                false => admission.run_in_background("search", later, endless).now_or_never(),
            };
            assert!(begun.is_none());
            becomes_free(if is_here { &admission.on_core } else { &admission.planned }).await;
            assert!(ended.try_recv().is_err_and(|it| it == oneshot::error::TryRecvError::Closed));
        }
    }

    #[tokio::test]
    async fn what_is_over_the_queue_is_refused_and_what_waits_too_long_is_dropped() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let soon = RequestContext::after(Duration::from_millis(50));
        let late = RequestContext::after(Duration::from_millis(250));
        let endless = std::future::pending::<Result<()>>().boxed();
        let (running, waiting, refused) = tokio::join!(
            admission.run_in_background("search", late, endless),
            admission.run_in_background("search", soon, async { Ok(1) }.boxed()),
            admission.run_in_background("search", soon, async { Ok(2) }.boxed()),
        );
        assert!(matches!(running, Err(QueryError::DeadlinePassed { .. })));
        assert!(matches!(waiting, Err(QueryError::DeadlinePassed { during: "search" })));
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })));
        assert_eq!(admission.waiting(), 0);
        let later = RequestContext::after(Duration::from_secs(10));
        let work = async { Ok(3) }.boxed();
        assert_eq!(admission.run_on_core("search", later, work).await.unwrap(), 3);
        let work = async { Ok(4) }.boxed();
        assert_eq!(admission.run_in_background("search", later, work).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn only_work_that_waits_goes_to_the_background() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let later = RequestContext::after(Duration::from_secs(10));
        let thread = || std::thread::current().id();
        let ready = async move { Ok(thread()) }.boxed();
        assert_eq!(admission.begin_on_core("lookup", later, ready).await.unwrap(), thread());
        let waits = async move {
            let begun = thread();
            tokio::task::yield_now().await;
            Ok((begun, thread()))
        };
        let (begun, ended) = admission.begin_on_core("lookup", later, waits.boxed()).await.unwrap();
        assert_eq!(begun, thread());
        assert_ne!(ended, thread());
        assert_eq!(admission.on_core.permits.locked().free, 1);
        let soon = RequestContext::after(Duration::from_millis(50));
        let endless =
            admission.begin_on_core("lookup", soon, std::future::pending::<Result<()>>().boxed());
        let endless = endless.await;
        assert!(matches!(endless, Err(QueryError::DeadlinePassed { during: "lookup" })));
        background.shutdown_background();
    }

    #[tokio::test]
    async fn what_waits_is_woken_where_it_went() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let (answer, mut answered) = oneshot::channel();
        let (moved, has_moved) = std::sync::mpsc::channel();
        let answering = std::thread::spawn(move || {
            has_moved.recv().unwrap();
            answer.send(7).unwrap();
        });
        // Polled here first, then there; only then it is woken, from a third thread.
        let mut polls = 0;
        let waits = poll_fn(move |cx| {
            polls += 1;
            let polled = answered.poll_unpin(cx);
            if polls == 2 {
                assert!(polled.is_pending());
                moved.send(()).unwrap();
            }
            polled.map(|answer| Ok(answer.unwrap()))
        });
        let later = RequestContext::after(Duration::from_secs(10));
        assert_eq!(admission.begin_on_core("lookup", later, waits.boxed()).await.unwrap(), 7);
        answering.join().unwrap();
        assert_eq!(admission.on_core.permits.locked().free, 1);
        background.shutdown_background();
    }

    #[tokio::test]
    async fn a_panic_is_an_error_here_and_there() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let later = RequestContext::after(Duration::from_secs(10));
        let here = async { panic!("at once") }.boxed();
        let there = async {
            tokio::task::yield_now().await;
            panic!("{} on", "later")
        };
        for (work, word) in [(here, "at once"), (there.boxed(), "later on")] {
            match admission.begin_on_core::<()>("lookup", later, work).await {
                Err(QueryError::Server(said)) => assert!(said.contains(word), "{said}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(admission.on_core.permits.locked().free, 1);
        }
    }

    #[tokio::test]
    async fn batch_work_goes_after_others_and_does_not_starve() {
        let admission = Arc::new(AdmissionQueue::new(1, 64, Handle::current()));
        let later = RequestContext::after(Duration::from_secs(10));
        let batch = later.with_priority(Priority::Batch.into()).unwrap();
        let first = admission.on_core.permits.take().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for (context, name) in [(batch, "batch"); 3].into_iter().chain([(later, "now"); 16]) {
            let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
            tasks.spawn(async move {
                let work = async {
                    order.lock().unwrap().push(name);
                    Ok(())
                };
                admission.run_on_core("search", context, work.boxed()).await.unwrap();
            });
            // In this order.
            tokio::task::yield_now().await;
        }
        // One that gives up is passed over.
        let gone = admission.on_core.permits.wait(Priority::Interactive);
        drop(gone);
        drop(first);
        tasks.join_all().await;
        let order = order.lock().unwrap().clone();
        let places: Vec<_> = (0..19).filter(|&at| order[at] == "batch").collect();
        assert_eq!(places, [7, 15, 18], "{order:?}");
        assert_eq!((admission.waiting(), admission.on_core.permits.locked().free), (0, 1));
    }

    #[tokio::test]
    async fn batch_work_has_half_of_the_queue() {
        let admission = AdmissionQueue::new(1, 3, Handle::current());
        let soon = RequestContext::after(Duration::from_millis(50));
        let batch = soon.with_priority(Priority::Batch.into()).unwrap();
        let _running = admission.on_core.permits.take().unwrap();
        let wait = |context| admission.run_on_core("search", context, async { Ok(()) }.boxed());
        let (one, two, three, now) =
            tokio::join!(wait(batch), wait(batch), wait(batch), wait(soon));
        assert!(matches!(three, Err(QueryError::Overloaded { waiting: 2 })), "{three:?}");
        for late in [one, two, now] {
            assert!(matches!(late, Err(QueryError::DeadlinePassed { .. })), "{late:?}");
        }
    }
}
