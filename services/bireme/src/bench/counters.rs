//! Counters of the nodes.

use client::query::StatusResponse;
use wire::fetch::{Core, DescribeResponse};
use wire::query::IoNode;

/// If there is one I/O node, and the CPU times that both tiers report differ by less than this, in microseconds, both
/// tiers are taken to be one process. The CPU times of one process differ a little, because the tiers are asked one
/// after the other.
const SAME_PROCESS_US: u64 = 100_000;

/// Counters of the I/O nodes together, and of the query node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// CPU time of the I/O nodes, in microseconds.
    pub io_cpu_us: u64,
    /// CPU time of the query node, in microseconds; `None` if it is not asked.
    pub query_cpu_us: Option<u64>,
    /// Rows that the I/O nodes served.
    pub io_rows: u64,
    /// Physical reads.
    pub drive_reads: u64,
    /// Bytes of the physical reads.
    pub drive_read_bytes: u64,
    /// Sectors found in RAM tiers.
    pub ram_hits: u64,
    /// Rows that I/O nodes answered from the table.
    pub table_rows: u64,
    /// Rows that the query node read from the table because their I/O node could not answer.
    pub fallback_rows: u64,
    /// Whether both tiers are one process.
    pub one_process: bool,
}

impl Counters {
    /// Returns the counters of both tiers.
    pub fn of_status(status: &StatusResponse) -> Self {
        let sum = |count: fn(&IoNode) -> u64| status.io_nodes.iter().map(count).sum();
        let io_cpu_us: u64 = sum(|node| node.cpu_us);
        Self {
            io_cpu_us,
            query_cpu_us: Some(status.cpu_us),
            io_rows: sum(|node| node.rows),
            drive_reads: sum(|node| node.drive_reads),
            drive_read_bytes: sum(|node| node.drive_read_bytes),
            ram_hits: sum(|node| node.ram_hits),
            table_rows: sum(|node| node.table_rows),
            fallback_rows: status.fallback_rows,
            one_process: status.io_nodes.len() == 1
                && io_cpu_us.abs_diff(status.cpu_us) < SAME_PROCESS_US,
        }
    }

    /// Returns the counters of one I/O node.
    pub fn of_node(node: &DescribeResponse) -> Self {
        let sum = |count: fn(&Core) -> u64| node.cores.iter().map(count).sum();
        Self {
            io_cpu_us: node.cpu_us,
            query_cpu_us: None,
            io_rows: sum(|core| core.rows),
            drive_reads: sum(|core| core.drive_reads),
            drive_read_bytes: sum(|core| core.drive_read_bytes),
            ram_hits: sum(|core| core.ram_hits),
            table_rows: sum(|core| core.table_rows),
            fallback_rows: 0,
            one_process: false,
        }
    }

    /// Returns the increase of each counter since `before`; 0 for a counter that has decreased, because its node was
    /// restarted.
    pub fn since(&self, before: &Self) -> Self {
        let delta = |count: fn(&Self) -> u64| count(self).saturating_sub(count(before));
        let query = self.query_cpu_us.zip(before.query_cpu_us);
        Self {
            io_cpu_us: delta(|it| it.io_cpu_us),
            query_cpu_us: query.map(|(after, before)| after.saturating_sub(before)),
            io_rows: delta(|it| it.io_rows),
            drive_reads: delta(|it| it.drive_reads),
            drive_read_bytes: delta(|it| it.drive_read_bytes),
            ram_hits: delta(|it| it.ram_hits),
            table_rows: delta(|it| it.table_rows),
            fallback_rows: delta(|it| it.fallback_rows),
            one_process: self.one_process && before.one_process,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_added_up_and_differences_taken() {
        let io =
            |rows, cpu_us| IoNode { rows, cpu_us, drive_reads: 2 * rows, ..Default::default() };
        let status = |nodes: Vec<IoNode>, cpu_us| StatusResponse {
            io_nodes: nodes,
            cpu_us,
            ..Default::default()
        };
        let before = Counters::of_status(&status(vec![io(10, 100), io(20, 200)], 1_000));
        let after = Counters::of_status(&status(vec![io(110, 400), io(20, 250)], 9_000));
        let run = after.since(&before);
        assert_eq!((run.io_rows, run.drive_reads, run.io_cpu_us), (100, 200, 350));
        assert_eq!((run.query_cpu_us, run.one_process), (Some(8_000), false));
        assert_eq!(before.since(&after).io_rows, 0);
        let one = Counters::of_status(&status(vec![io(1, 5_000_000)], 5_000_900));
        assert!(one.one_process);
        let two = Counters::of_status(&status(vec![io(1, 5_000_000)], 6_000_000));
        assert!(!one.since(&two).one_process);
    }

    #[test]
    fn an_io_nodes_cores_are_added_up() {
        let core = |rows| Core { rows, drive_read_bytes: 4096 * rows, ..Default::default() };
        let node =
            DescribeResponse { cores: vec![core(3), core(4)], cpu_us: 9, ..Default::default() };
        let counters = Counters::of_node(&node);
        assert_eq!(
            (counters.io_rows, counters.drive_read_bytes, counters.io_cpu_us),
            (7, 7 * 4096, 9)
        );
        assert_eq!(counters.query_cpu_us, None);
    }
}
