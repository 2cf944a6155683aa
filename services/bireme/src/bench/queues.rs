//! Samples the queues between the stages under load: where a queue grows, the stage that takes from it is the
//! bottleneck.

use std::time::{Duration, Instant};

use client::fetch::FetchClient;
use client::query::QueryClient;
use serde::Serialize;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use wire::fetch::DescribeResponse;

/// The time that an I/O node has to answer.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The maximum number of samples of one run.
const SAMPLES_MAX: usize = 100_000;

/// The lengths of the queues at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Queues {
    /// Seconds since the load began.
    pub seconds: f64,
    /// Requests that wait on the query node, in the longest of its admission queues; `None` if the load goes to an I/O
    /// node alone.
    pub searches_waiting: Option<u64>,
    /// Pieces of rows that wait for a read on the I/O nodes.
    pub pieces_waiting: u64,
    /// Reads in flight.
    pub reads_in_flight: u64,
    /// Bytes that the I/O nodes hold for clients: connections, streams, batches under way, and replies until they are
    /// sent.
    pub reply_bytes: u64,
}

/// The node to sample.
pub enum Watch {
    /// One I/O node.
    IoNode(FetchClient),
    /// A query node, and the I/O nodes behind it.
    QueryNode(Box<QueryClient>),
}

/// A task that takes samples.
pub struct Sampling {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Vec<Queues>>,
}

impl Watch {
    /// Takes a sample every `interval`, until [`Sampling::end`] or until there are [`SAMPLES_MAX`]. Samples that fail, or
    /// that are still unanswered when the sampling ends, are left out.
    pub fn sample(self, interval: Duration) -> Sampling {
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let mut samples = Vec::new();
            let mut ticks = tokio::time::interval(interval.max(Duration::from_millis(1)));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            tokio::pin!(stopped);
            while samples.len() < SAMPLES_MAX {
                let asked = async {
                    ticks.tick().await;
                    self.ask().await
                };
                let queues = tokio::select! {
                    _ = &mut stopped => break,
                    queues = asked => queues,
                };
                if let Some(queues) = queues {
                    samples.push(Queues { seconds: began.elapsed().as_secs_f64(), ..queues });
                }
            }
            samples
        });
        Sampling { stop, task }
    }

    async fn ask(&self) -> Option<Queues> {
        match self {
            Self::IoNode(node) => Some(of_node(&node.describe(TIMEOUT).await.ok()?)),
            Self::QueryNode(node) => {
                let status = node.status().await.ok()?;
                let mut sum = Queues {
                    searches_waiting: Some(status.search_queue.into()),
                    ..Queues::default()
                };
                for node in &status.io_nodes {
                    sum.pieces_waiting += node.queued;
                    sum.reads_in_flight += node.in_flight;
                    sum.reply_bytes += node.reply_bytes;
                }
                Some(sum)
            }
        }
    }
}

impl Sampling {
    /// Stops and returns the samples.
    pub async fn end(self) -> Vec<Queues> {
        // Sending fails if the task has ended by itself.
        let _ = self.stop.send(());
        self.task.await.unwrap_or_default()
    }
}

fn of_node(node: &DescribeResponse) -> Queues {
    let mut sum = Queues::default();
    for core in &node.cores {
        sum.pieces_waiting += u64::from(core.queued);
        sum.reads_in_flight += u64::from(core.in_flight);
        sum.reply_bytes += core.reply_bytes;
    }
    sum
}

#[cfg(test)]
mod tests {
    use client::fetch::FetchOptions;
    use wire::fetch::Core;

    use super::*;

    #[test]
    fn a_nodes_cores_are_added_up() {
        let core = |queued| Core { queued, in_flight: 2, reply_bytes: 10, ..Default::default() };
        let node = DescribeResponse { cores: vec![core(3), core(4)], ..Default::default() };
        let expected =
            Queues { pieces_waiting: 7, reads_in_flight: 4, reply_bytes: 20, ..Default::default() };
        assert_eq!(of_node(&node), expected);
    }

    #[tokio::test]
    async fn a_sample_that_waits_for_its_answer_does_not_delay_the_end() {
        // The system accepts connections to this socket, but no node answers.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap().to_string().parse().unwrap();
        let node = FetchClient::new(endpoint, FetchOptions::default()).unwrap();
        let sampling = Watch::IoNode(node).sample(Duration::from_millis(1));
        tokio::time::sleep(Duration::from_millis(100)).await;
        let began = Instant::now();
        assert_eq!(sampling.end().await, []);
        assert!(began.elapsed() < TIMEOUT, "the end waits for the sample");
    }
}
