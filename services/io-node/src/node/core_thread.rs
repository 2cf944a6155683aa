//! A core's thread: it starts the core, serves, handles messages, and drains at the end.

use std::sync::Arc;

use connections::idle;
use futures::FutureExt;
use futures::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::error::NodeError;
use crate::fetch::{self, Core, CorePlan, here, replica, set_here};
use crate::serve::{self, ServiceState};
use crate::shard::mailbox::Message;

/// The arguments of a core's thread.
pub struct CoreStart {
    /// The core's number in the node, counted from 0.
    pub number: usize,
    /// The CPU to pin the thread to.
    pub cpu: Option<usize>,
    /// The state that the services of all cores share.
    pub shared: Arc<ServiceState>,
    /// The parameters with which the core is built.
    pub plan: CorePlan,
    /// The receiving end of the core's mailbox.
    pub mail: mpsc::UnboundedReceiver<Message>,
    /// Receives, once, a description of the core's ring or the reason why the core failed to start.
    pub started: std::sync::mpsc::Sender<Result<String, NodeError>>,
}

/// Runs a core until it has drained after [`Message::Stop`], or receives [`Message::End`].
pub fn run(start: CoreStart) {
    let CoreStart { number, cpu, shared, plan, mail, started } = start;
    let runtime = match prepare(cpu) {
        Ok(runtime) => runtime,
        Err(error) => return drop(started.send(Err(error))),
    };
    runtime.block_on(async move {
        match plan.build(number, cpu, Arc::clone(&shared.node)) {
            Ok(core) => {
                let _ = started.send(Ok(core.ring.describe().to_string()));
                set_here(Some(core));
                event_loop(shared, mail).await;
            }
            Err(error) => drop(started.send(Err(error))),
        }
    });
    // Drop the runtime first: the drops of its remaining tasks may call `here`.
    drop(runtime);
    set_here(None);
}

fn prepare(cpu: Option<usize>) -> Result<tokio::runtime::Runtime, NodeError> {
    if let Some(cpu) = cpu {
        let doing = "pinning a thread to its core";
        ring::affinity::pin_to(cpu).map_err(|source| NodeError::Os { doing, source })?;
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .on_thread_park(ring::submit_all)
        .build()
        .map_err(|source| NodeError::Os { doing: "starting a core's runtime", source })
}

/// Serves connections and handles messages for the core of this thread, until it has drained after [`Message::Stop`],
/// or receives [`Message::End`].
pub async fn event_loop(shared: Arc<ServiceState>, mut mail: mpsc::UnboundedReceiver<Message>) {
    tokio::spawn(fetch::submit_loop());
    tokio::spawn(fetch::watch_timeouts(shared.node.config.read_timeout));
    tokio::spawn(fetch::watch_slow_drives());
    tokio::spawn(idle::poll(shared.node.config.idle_poll, Arc::clone(&here().activity)));
    let (adopted, incoming) = mpsc::unbounded_channel();
    // A token wakes its waiters in the order in which they began to wait, so that a simulation repeats. A `watch`
    // channel would wake them in a random order.
    let stop = CancellationToken::new();
    let mut server = tokio::spawn(serve::serve(shared, incoming, stop.clone()));
    let (mut is_stopping, mut simulated) = (false, 0);
    let mut transfers = FuturesUnordered::new();
    loop {
        let message = tokio::select! {
            biased;
            Some(()) = transfers.next() => continue,
            message = mail.recv() => message,
            // Keep receiving while streams end: batches under way may still wait for messages.
            _ = &mut server, if is_stopping => break,
        };
        let core = here();
        match message {
            Some(Message::Connection(accepted)) => {
                accepted.adopt(&mut simulated).into_iter().for_each(|it| drop(adopted.send(it)));
            }
            Some(Message::Write { drive, offset, buf, done }) => {
                let write = core.ring.write(drive, offset, buf);
                transfers.push(answer(write, done).boxed_local());
            }
            Some(Message::Read { drive, offset, buf, done }) => {
                let read = core.ring.read_owned(drive, offset, buf);
                transfers.push(answer(read, done).boxed_local());
            }
            Some(Message::Fsync { drive, done }) => {
                transfers.push(answer(core.ring.fsync(drive), done).boxed_local());
            }
            Some(Message::Stop) | None => {
                is_stopping = true;
                stop.cancel();
            }
            // Return without draining, because clients that keep sending could delay the end for ever. The streams end
            // when the thread's runtime is dropped.
            Some(Message::End) => return,
            Some(other) => handle_message(&core, other),
        }
    }
    while transfers.next().await.is_some() {}
    let ring = here().ring.clone();
    ring.drain().await;
}

/// Sends the outcome of a transfer. The receiver may be gone.
async fn answer<T>(outcome: impl Future<Output = T>, done: oneshot::Sender<T>) {
    let _ = done.send(outcome.await);
}

fn handle_message(core: &Core, message: Message) {
    match message {
        Message::Opened { session, handle, serial, opening } => {
            serve::opened(core, session, handle, serial, opening);
        }
        Message::Image { request, part, image, held } => {
            fetch::image(core, request, part, image, held);
        }
        Message::Held(held) => drop(held),
        Message::Publish { extent, done } => {
            replica::add(core, extent);
            drop(done);
        }
        Message::Forget { keys, done } => replica::forget(core, &keys, done),
        Message::Describe(to) => drop(to.send(core.snapshot())),
        Message::Restored { extents, done } => drop(done.send(replica::restore(core, &extents))),
        Message::Heat { keys, heats } => drop(heats.send(replica::heats(core, &keys))),
        Message::Connection(_)
        | Message::Write { .. }
        | Message::Read { .. }
        | Message::Fsync { .. }
        | Message::Stop
        | Message::End => {}
    }
}
