//! Lance's pool of threads that compute.

use std::convert::Infallible;

use lance_core::utils::tokio::spawn_cpu;

/// Waits until everything that Lance's CPU pool was given before has begun, and with one thread has ended.
///
/// The pool is first in, first out, and what it was given can't be taken back. So once this returns no more than its
/// threads are at work for those that have gone, however many there were.
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
    async fn what_was_given_before_has_begun() {
        static BEGUN: AtomicUsize = AtomicUsize::new(0);
        let jobs = 3 * get_num_compute_intensive_cpus();
        for _ in 0..jobs {
            // Nobody waits for it.
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
