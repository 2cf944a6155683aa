//! Whether a node's cores run, for those who restart it if they don't.
//!
//! A core that is busy is not dead: a node that is restarted for being busy loses its caches and helps nobody. So a
//! probe is answered after a moment whether all cores have answered or not, until one has not for a minute.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::serve::Source;

/// How long a probe waits for the cores: less than any prober does.
const PROBE_PATIENCE: Duration = Duration::from_millis(500);

/// A core that has not answered for this long doesn't run any more. The longest work on one is a matter of
/// milliseconds; a machine that swaps or was paused may take many seconds.
const CORE_PATIENCE: Duration = Duration::from_secs(60);

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its cores run, or may.
    Alive,
    /// A core has ended.
    Ended,
    /// A core has not answered for so long.
    Stuck(Duration),
}

/// Asks the cores, once for all who want to know at the same time. Of one thread.
pub struct Liveness<S> {
    source: Arc<S>,
    state: Rc<LivenessState>,
}

#[derive(Default)]
struct LivenessState {
    /// Since when they are being asked.
    asking_since: Cell<Option<Instant>>,
    has_ended: Cell<bool>,
    answered: Notify,
}

impl<S: Source> Liveness<S> {
    pub fn new(source: Arc<S>) -> Self {
        Self { source, state: Rc::default() }
    }

    /// How the node is, soon.
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
        // Whoever else asked at the same time is answered with this.
        let _ = timeout(PROBE_PATIENCE, answered).await;
        let waited = self.state.asking_since.get().map_or(Duration::ZERO, |since| since.elapsed());
        match self.state.has_ended.get() {
            true => Life::Ended,
            false if waited >= CORE_PATIENCE => Life::Stuck(waited),
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

    /// Cores that answer when a test says so.
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
                assert_eq!(began.elapsed().as_millis(), PROBE_PATIENCE.as_millis());
                tokio::time::advance(CORE_PATIENCE - PROBE_PATIENCE * 3).await;
                let both = tokio::join!(liveness.ask(), liveness.ask());
                assert_eq!(both, (Life::Alive, Life::Alive));
                tokio::time::advance(PROBE_PATIENCE).await;
                assert!(matches!(liveness.ask().await, Life::Stuck(_)));
                assert_eq!(cores.asked.load(Ordering::Relaxed), 2, "asked once at a time");
                answer.send(false).unwrap();
                assert_eq!(liveness.ask().await, Life::Ended);
            })
            .await;
    }
}
