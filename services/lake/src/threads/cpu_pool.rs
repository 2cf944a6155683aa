//! Lance's CPU pool: its threads for computing.

use std::convert::Infallible;

use lance_core::utils::tokio::spawn_cpu;

/// Waits until all jobs that are in the queue of Lance's CPU pool have begun; with one thread, until they have ended.
///
/// The pool is first in, first out, and jobs can't be cancelled. So once this returns, at most one job per thread is
/// still running for callers that were dropped before the call, even if there were many such callers.
pub async fn cpu_pool_drained() {
    let Ok(()) = spawn_cpu(|| Ok::<_, Infallible>(())).await;
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use lance_core::utils::tokio::get_num_compute_intensive_cpus;

    use super::*;

    #[tokio::test]
    async fn earlier_jobs_have_begun() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let jobs = 3 * get_num_compute_intensive_cpus();
        for _ in 0..jobs {
            // Nobody awaits the job.
            drop(spawn_cpu(|| {
                BEGUN.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(20));
                Ok::<_, Infallible>(())
            }));
        }
        cpu_pool_drained().await;
        assert_eq!(BEGUN.load(Ordering::SeqCst), jobs);
    }
}
