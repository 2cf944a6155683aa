//! Answers liveness probes: whether a node's cores still run.
//!
//! A busy core is not dead. A node that is restarted because it is busy loses its caches, which makes it slower. So a
//! probe waits only briefly for the cores, and fails only if a core has ended or has not answered for a minute.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::source::Source;

/// The time that a probe waits for the cores. A kubelet waits for the probe's answer for at least 1 s.
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// The time without an answer after which a core is considered stuck. The longest work on a core takes milliseconds,
/// but a machine that swaps or was paused may take many seconds.
const CORE_TIMEOUT: Duration = Duration::from_secs(60);

/// The result of a liveness probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// All cores run, or have not been silent for long.
    Alive,
    /// A core has ended.
    Ended,
    /// A core has not answered for this long.
    Stuck(Duration),
}

/// Checks, for liveness probes, whether a node's cores still run. Concurrent probes share one check. It must be used
/// within a `LocalSet`, on one thread.
pub struct Liveness<S> {
    source: Arc<S>,
    state: Rc<LivenessState>,
}

#[derive(Default)]
struct LivenessState {
    /// The time at which the cores were asked, until they have answered.
    asking_since: Cell<Option<Instant>>,
    has_ended: Cell<bool>,
    answered: Notify,
}

impl<S: Source> Liveness<S> {
    pub fn new(source: Arc<S>) -> Self {
        Self { source, state: Rc::default() }
    }

    /// Returns the node's state within [`PROBE_TIMEOUT`].
    pub async fn ask(&self) -> Life {
        let answered = self.state.answered.notified();
        if self.state.asking_since.get().is_none() {
            self.state.asking_since.set(Some(Instant::now()));
            let (source, state) = (Arc::clone(&self.source), Rc::clone(&self.state));
            tokio::task::spawn_local(async move {
                state.has_ended.set(!source.is_alive().await);
                state.asking_since.set(None);
                state.answered.notify_waiters();
            });
        }
        // Concurrent probes wait for the same answer.
        let _ = timeout(PROBE_TIMEOUT, answered).await;
        let waited = self.state.asking_since.get().map_or(Duration::ZERO, |since| since.elapsed());
        match self.state.has_ended.get() {
            true => Life::Ended,
            false if waited >= CORE_TIMEOUT => Life::Stuck(waited),
            false => Life::Alive,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::oneshot;
    use tokio::task::LocalSet;

    use super::*;
    use crate::metrics::Samples;

    /// Cores that answer when the test says so.
    #[derive(Default)]
    struct Cores {
        asked: AtomicU32,
        answer: Mutex<Option<oneshot::Receiver<bool>>>,
    }

    impl Source for Cores {
        async fn collect(&self) -> Samples {
            Samples::default()
        }

        fn is_ready(&self) -> bool {
            true
        }

        async fn is_alive(&self) -> bool {
            self.asked.fetch_add(1, Ordering::Relaxed);
            let answer = self.answer.lock().unwrap().take();
            match answer {
                Some(answer) => answer.await.unwrap(),
                None => true,
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn busy_is_not_dead_until_a_minute_has_passed() {
        let local = LocalSet::new();
        local
            .run_until(async {
                let cores = Arc::new(Cores::default());
                let liveness = Liveness::new(Arc::clone(&cores));
                assert_eq!(liveness.ask().await, Life::Alive);
                let (answer, answered) = oneshot::channel();
                *cores.answer.lock().unwrap() = Some(answered);
                let began = Instant::now();
                assert_eq!(liveness.ask().await, Life::Alive);
                assert_eq!(began.elapsed().as_millis(), PROBE_TIMEOUT.as_millis());
                tokio::time::advance(CORE_TIMEOUT - PROBE_TIMEOUT * 3).await;
                let both = tokio::join!(liveness.ask(), liveness.ask());
                assert_eq!(both, (Life::Alive, Life::Alive));
                tokio::time::advance(PROBE_TIMEOUT).await;
                assert!(matches!(liveness.ask().await, Life::Stuck(_)));
                assert_eq!(cores.asked.load(Ordering::Relaxed), 2, "asked once at a time");
                answer.send(false).unwrap();
                assert_eq!(liveness.ask().await, Life::Ended);
            })
            .await;
    }
}
