//! Limits how many searches, look-ups, table reads, and steps of Placement, Warm and Tune run concurrently, and queues
//! the others. A Warm needs a permit only to plan its fills; a Tune needs one for each of its searches and table reads.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use scheduler::{Flow, Permit, Permits};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::error::{QueryError, Result};
use crate::request_context::RequestContext;

/// The maximum number of look-ups that read pages of key indexes at the same time, over all cores. Each waits for the
/// network and drives most of the time, and holds up to a megabyte of pages.
const PAGED_LOOKUPS_MAX: usize = 32;

/// Admits work in three lanes. `on_core` is for work that begins on a core, such as a look-up by key or a short search
/// of an open index. `in_background` is for work that runs in the background from its start, above all searches that
/// Lance plans. `paged` is for look-ups that read pages of key indexes. A filter may read a whole table, and a page may
/// come late: with a single lane, a few such requests would block every look-up.
///
/// Each lane has permits, which limit how many requests run concurrently, and a bounded queue for a permit. The queue
/// serves interactive requests first, except that one permit in eight goes to batch work first. Requests of one
/// priority are ordered fairly between grants by weight, and by arrival within a grant (`services/scheduler`).
///
/// A search keeps its permit while it waits for index partitions that are not cached, because Lance's search reads
/// them. Abandoned work keeps its permit until its task has ended and Lance's CPU pool has begun the jobs of its queue
/// ([`Running`]).
pub struct AdmissionQueue {
    on_core: Arc<Permits>,
    in_background: Arc<Permits>,
    paged: Arc<Permits>,
    /// The runtime that runs work in the background.
    runtime: Handle,
}

/// A request for a permit.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// The stage of the request, named in errors.
    pub during: &'static str,
    /// The number of rows that the work asks for. The fair queue charges them to the request's grant.
    pub rows: usize,
    /// The request's context.
    pub context: RequestContext,
}

impl AdmissionQueue {
    /// Creates a queue whose lanes each run `concurrency` requests ([`PAGED_LOOKUPS_MAX`] in the lane of look-ups that
    /// read pages) and let `waiting_max` wait. Batch work may fill at most half of the places in a lane's queue
    /// (rounded up), and one grant at most seven eighths (all, if there are fewer than 8). `runtime` runs the work in
    /// the background. On a core, that work would delay all connections of the core.
    pub fn new(concurrency: usize, waiting_max: usize, runtime: Handle) -> Self {
        let lane = || Permits::new(concurrency, waiting_max);
        let paged = Permits::new(PAGED_LOOKUPS_MAX, waiting_max);
        Self { on_core: lane(), in_background: lane(), paged, runtime }
    }

    fn lanes(&self) -> [&Arc<Permits>; 3] {
        [&self.on_core, &self.in_background, &self.paged]
    }

    /// Returns how many requests wait in the lane with the longest queue. `waiting_max` applies to each lane.
    pub fn waiting(&self) -> usize {
        self.lanes().map(|lane| lane.waiting()).into_iter().max().unwrap_or(0)
    }

    /// Returns how many requests of a grant's flow wait, in all lanes together.
    pub fn waiting_of(&self, flow: Flow) -> usize {
        self.lanes().map(|lane| lane.waiting_of(flow)).into_iter().sum()
    }

    /// Runs `work` on this core once it has a permit. Work whose deadline has passed is not begun.
    ///
    /// # Errors
    /// [`QueryError::Overloaded`] if too many requests wait, [`QueryError::DeadlinePassed`], or the error of `work`.
    pub async fn run_on_core<T>(&self, ask: Ask, work: BoxFuture<'_, Result<T>>) -> Result<T> {
        let running = Running::new(self, permit(&self.on_core, ask).await?);
        let done = ask.context.bound(ask.during, work).await;
        if !matches!(done, Err(QueryError::DeadlinePassed { .. })) {
            running.ended();
        }
        done
    }

    /// Runs `work` in the background once it has a permit. This is for work that Lance plans and for anything else that
    /// may take milliseconds of CPU.
    ///
    /// # Errors
    /// The errors of [`run_on_core`](Self::run_on_core), and [`QueryError::Server`] if `work` panics.
    pub async fn run_in_background<T: Send + 'static>(
        &self,
        ask: Ask,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        self.run_spawned(&self.in_background, ask, work).await
    }

    /// Runs a look-up that reads pages of a key index in the background, once it has a permit. It needs little CPU.
    ///
    /// # Errors
    /// The errors of [`run_on_core`](Self::run_on_core), and [`QueryError::Server`] if `work` panics.
    pub async fn run_paged<T: Send + 'static>(
        &self,
        ask: Ask,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        self.run_spawned(&self.paged, ask, work).await
    }

    async fn run_spawned<T: Send + 'static>(
        &self,
        lane: &Arc<Permits>,
        ask: Ask,
        work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let permit = permit(lane, ask).await?;
        ask.context.bound(ask.during, self.spawn(permit, work).boxed()).await
    }

    /// Polls `work` once on this core once it has a permit. If the work is not finished after this poll, it continues
    /// in the background. This is for work that needs little CPU and rarely waits for I/O, if it is not known
    /// beforehand whether it will wait. Handing a look-up to the background took 0.2 ms on an idle node, longer than
    /// the look-up itself. A panic becomes a [`QueryError::Server`], as in the background.
    ///
    /// # Errors
    /// The errors of [`run_on_core`](Self::run_on_core), and [`QueryError::Server`] if `work` panics.
    pub async fn begin_on_core<T: Send + 'static>(
        &self,
        ask: Ask,
        mut work: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let permit = permit(&self.on_core, ask).await?;
        // The waker of this single poll is lost, but the background task polls the work again with its own.
        match AssertUnwindSafe(&mut work).catch_unwind().now_or_never() {
            Some(done) => done.unwrap_or_else(|panic| Err(panicked(panic.as_ref()))),
            None => ask.context.bound(ask.during, self.spawn(permit, work).boxed()).await,
        }
    }

    /// Runs `work` in the background and releases `permit` when it has ended. A panic becomes a
    /// [`QueryError::Server`].
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
        // Dropping the set aborts the task when the caller stops waiting.
        let mut task = JoinSet::new();
        task.spawn_on(work, &self.runtime);
        match task.join_next().await {
            Some(Ok(done)) => done,
            Some(Err(error)) => Err(QueryError::Server(error.to_string())),
            None => Err(QueryError::Server("the task set is empty; this is a defect".into())),
        }
    }
}

/// Waits for a permit of a lane.
async fn permit(lane: &Arc<Permits>, ask: Ask) -> Result<Permit> {
    let Ask { during, rows, context } = ask;
    let permit = match lane.take() {
        Some(permit) => permit,
        None => {
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            let waiting = lane.wait(rows, context.flow(), context.priority());
            let waiting =
                waiting.map_err(|full| QueryError::Overloaded { waiting: full.waiting })?;
            context.bound(during, waiting.map(Ok).boxed()).await?
        }
    };
    context.check(during)?;
    Ok(permit)
}

/// The permit of work that has begun. If it is dropped before [`ended`](Self::ended), because the deadline passed or
/// the caller stopped waiting, it releases the permit only when Lance's CPU pool has begun all jobs of its queue.
///
/// A computation cannot be interrupted: an aborted task runs until its next await, and Lance's CPU pool finishes
/// what the task has given to it. If permits were released earlier, callers with short deadlines could start any number
/// of computations.
struct Running {
    runtime: Handle,
    permit: Option<Permit>,
}

impl Running {
    fn new(admission: &AdmissionQueue, permit: Permit) -> Self {
        Self { runtime: admission.runtime.clone(), permit: Some(permit) }
    }

    fn ended(mut self) {
        self.permit = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.runtime.spawn(async move {
                lake::cpu_pool_drained().await;
                drop(permit);
            });
        }
    }
}

/// Returns the error for work that panicked.
fn panicked(panic: &(dyn Any + Send)) -> QueryError {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    QueryError::Server(format!("panicked: {}", text.unwrap_or("without a message")))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Mutex;
    use std::time::Duration;

    use scheduler::Priority;
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;
    use tokio::time::Instant;

    use super::*;

    fn ask(during: &'static str, context: RequestContext) -> Ask {
        Ask { during, rows: 1, context }
    }

    async fn becomes_free(lane: &Permits) {
        while lane.free() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    #[tokio::test]
    async fn abandoned_work_keeps_its_permit_until_it_has_ended() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let soon = || RequestContext::after(Duration::from_millis(50));
        let began = Instant::now();
        // Blocks its thread, like a long computation.
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let computing = async move {
            held.recv().unwrap();
            Ok(1)
        };
        // The time suffices for the background to begin it.
        let begun = RequestContext::after(Duration::from_secs(1));
        let late = admission.run_in_background(ask("search", begun), computing.boxed()).await;
        assert!(matches!(late, Err(QueryError::DeadlinePassed { during: "search" })), "{late:?}");
        assert!(began.elapsed() < Duration::from_secs(5), "answered after {:?}", began.elapsed());
        // New requests wait until their own deadlines, and the queue stays bounded.
        let next = || admission.run_in_background(ask("search", soon()), async { Ok(2) }.boxed());
        let (waited, refused) = tokio::join!(next(), next());
        assert!(matches!(waited, Err(QueryError::DeadlinePassed { .. })), "{waited:?}");
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })), "{refused:?}");
        assert_eq!((admission.in_background.free(), admission.waiting()), (0, 0));
        // Work that begins on a core does not wait for work in the background.
        let later = RequestContext::after(Duration::from_secs(10));
        let work = async { Ok(3) }.boxed();
        assert_eq!(admission.run_on_core(ask("search", later), work).await.unwrap(), 3);
        hold.send(()).unwrap();
        becomes_free(&admission.in_background).await;
        let work = async { Ok(4) }.boxed();
        assert_eq!(admission.run_in_background(ask("search", later), work).await.unwrap(), 4);
        background.shutdown_background();
    }

    #[tokio::test]
    async fn look_ups_that_read_pages_wait_for_each_other_only() {
        let admission = AdmissionQueue::new(1, 8, Handle::current());
        let late = RequestContext::after(Duration::from_secs(1));
        let soon = RequestContext::after(Duration::from_millis(50));
        let endless = || std::future::pending::<Result<i32>>().boxed();
        let hung =
            (0..PAGED_LOOKUPS_MAX).map(|_| admission.run_paged(ask("lookup", late), endless()));
        let hung = futures::future::join_all(hung);
        let others = async {
            let next = admission.run_paged(ask("lookup", soon), async { Ok(1) }.boxed()).await;
            assert!(
                matches!(next, Err(QueryError::DeadlinePassed { during: "lookup" })),
                "{next:?}"
            );
            let work = || async { Ok(2) }.boxed();
            let on_core = admission.begin_on_core(ask("lookup", late), work()).await.unwrap();
            let in_background = admission.run_in_background(ask("search", late), work()).await;
            (on_core, in_background.unwrap())
        };
        let (hung, others) = tokio::join!(hung, others);
        assert_eq!(others, (2, 2));
        assert!(hung.iter().all(|it| matches!(it, Err(QueryError::DeadlinePassed { .. }))));
        becomes_free(&admission.paged).await;
        let later = RequestContext::after(Duration::from_secs(10));
        let work = async { Ok(3) }.boxed();
        assert_eq!(admission.run_paged(ask("lookup", later), work).await.unwrap(), 3);
    }

    #[tokio::test]
    async fn abandoned_work_is_aborted_and_its_permit_released() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let later = RequestContext::after(Duration::from_secs(10));
        for on_core in [true, false] {
            let (alive, mut ended) = oneshot::channel::<()>();
            let endless = async move {
                let _alive = alive;
                std::future::pending::<Result<()>>().await
            };
            let endless = endless.boxed();
            let begun = match on_core {
                true => admission.run_on_core(ask("search", later), endless).now_or_never(),
                false => admission.run_in_background(ask("search", later), endless).now_or_never(),
            };
            assert!(begun.is_none());
            becomes_free(if on_core { &admission.on_core } else { &admission.in_background }).await;
            assert!(ended.try_recv().is_err_and(|it| it == oneshot::error::TryRecvError::Closed));
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_request_that_waits_too_long_is_dropped() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let soon = RequestContext::after(Duration::from_millis(50));
        let late = RequestContext::after(Duration::from_millis(250));
        let endless = std::future::pending::<Result<()>>().boxed();
        let (running, waiting, refused) = tokio::join!(
            admission.run_in_background(ask("search", late), endless),
            admission.run_in_background(ask("search", soon), async { Ok(1) }.boxed()),
            admission.run_in_background(ask("search", soon), async { Ok(2) }.boxed()),
        );
        assert!(matches!(running, Err(QueryError::DeadlinePassed { .. })));
        assert!(matches!(waiting, Err(QueryError::DeadlinePassed { during: "search" })));
        assert!(matches!(refused, Err(QueryError::Overloaded { waiting: 1 })));
        assert_eq!(admission.waiting(), 0);
        let later = RequestContext::after(Duration::from_secs(10));
        let work = async { Ok(3) }.boxed();
        assert_eq!(admission.run_on_core(ask("search", later), work).await.unwrap(), 3);
        let work = async { Ok(4) }.boxed();
        assert_eq!(admission.run_in_background(ask("search", later), work).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn only_work_that_waits_goes_to_the_background() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let later = RequestContext::after(Duration::from_secs(10));
        let thread = || std::thread::current().id();
        let ready = async move { Ok(thread()) }.boxed();
        assert_eq!(admission.begin_on_core(ask("lookup", later), ready).await.unwrap(), thread());
        let waits = async move {
            let begun = thread();
            tokio::task::yield_now().await;
            Ok((begun, thread()))
        };
        let (begun, ended) =
            admission.begin_on_core(ask("lookup", later), waits.boxed()).await.unwrap();
        assert_eq!(begun, thread());
        assert_ne!(ended, thread());
        assert_eq!(admission.on_core.free(), 1);
        let soon = RequestContext::after(Duration::from_millis(50));
        let endless = admission
            .begin_on_core(ask("lookup", soon), std::future::pending::<Result<()>>().boxed());
        let endless = endless.await;
        assert!(matches!(endless, Err(QueryError::DeadlinePassed { during: "lookup" })));
        background.shutdown_background();
    }

    #[tokio::test]
    async fn work_that_moved_to_the_background_is_woken_there() {
        let background = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let admission = AdmissionQueue::new(1, 1, background.handle().clone());
        let (answer, mut answered) = oneshot::channel();
        let (moved, has_moved) = std::sync::mpsc::channel();
        let answering = std::thread::spawn(move || {
            has_moved.recv().unwrap();
            answer.send(7).unwrap();
        });
        // The work is polled first here and then in the background. Only then does a third thread wake it.
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
        assert_eq!(admission.begin_on_core(ask("lookup", later), waits.boxed()).await.unwrap(), 7);
        answering.join().unwrap();
        assert_eq!(admission.on_core.free(), 1);
        background.shutdown_background();
    }

    #[tokio::test]
    async fn a_panic_is_an_error_on_the_core_and_in_the_background() {
        let admission = AdmissionQueue::new(1, 1, Handle::current());
        let later = RequestContext::after(Duration::from_secs(10));
        let on_core = async { panic!("at once") }.boxed();
        let in_background = async {
            tokio::task::yield_now().await;
            panic!("{} on", "later")
        };
        for (work, message) in [(on_core, "at once"), (in_background.boxed(), "later on")] {
            match admission.begin_on_core::<()>(ask("lookup", later), work).await {
                Err(QueryError::Server(text)) => assert!(text.contains(message), "{text}"),
                other => panic!("{other:?}"),
            }
            assert_eq!(admission.on_core.free(), 1);
        }
    }

    #[tokio::test]
    async fn batch_work_runs_after_interactive_work_and_does_not_starve() {
        let admission = Arc::new(AdmissionQueue::new(1, 64, Handle::current()));
        let later = RequestContext::after(Duration::from_secs(10));
        let batch = later.as_batch();
        let first = admission.on_core.take().unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for (context, name) in [(batch, "batch"); 3].into_iter().chain([(later, "now"); 16]) {
            let (admission, order) = (Arc::clone(&admission), Arc::clone(&order));
            tasks.spawn(async move {
                let work = async {
                    order.lock().unwrap().push(name);
                    Ok(())
                };
                admission.run_on_core(ask("search", context), work.boxed()).await.unwrap();
            });
            // Let the task join the queue before the next one is spawned.
            tokio::task::yield_now().await;
        }
        // A request that has stopped waiting is skipped.
        let gone = admission.on_core.wait(1, Flow::default(), Priority::Interactive).unwrap();
        drop(gone);
        drop(first);
        tasks.join_all().await;
        let order = order.lock().unwrap().clone();
        let places: Vec<_> = (0..19).filter(|&at| order[at] == "batch").collect();
        assert_eq!(places, [7, 15, 18], "{order:?}");
        assert_eq!((admission.waiting(), admission.on_core.free()), (0, 1));
    }

    #[tokio::test]
    async fn batch_work_has_half_of_the_queue() {
        let admission = AdmissionQueue::new(1, 3, Handle::current());
        let soon = RequestContext::after(Duration::from_millis(50));
        let batch = soon.as_batch();
        let _running = admission.on_core.take().unwrap();
        let wait =
            |context| admission.run_on_core(ask("search", context), async { Ok(()) }.boxed());
        let (one, two, three, now) =
            tokio::join!(wait(batch), wait(batch), wait(batch), wait(soon));
        assert!(matches!(three, Err(QueryError::Overloaded { waiting: 2 })), "{three:?}");
        for late in [one, two, now] {
            assert!(matches!(late, Err(QueryError::DeadlinePassed { .. })), "{late:?}");
        }
    }
}
