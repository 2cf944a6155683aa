//! Metrics of the process. Their names follow OpenTelemetry's conventions.

use super::samples::Samples;

crate::metrics! {
    pub static PROCESS_METRICS;
    CPU_TIME = Counter "process.cpu.time" "s" [] "CPU time of the process, in user and kernel mode";
    MEMORY_USAGE = Gauge "process.memory.usage" "By" [] "Resident memory of the process";
}

/// Adds the current CPU time and memory of the process.
pub fn process_samples(samples: &mut Samples) {
    let usage = process::Usage::now();
    samples.add(&CPU_TIME, &[], usage.cpu_us as f64 / 1e6);
    samples.add(&MEMORY_USAGE, &[], usage.resident_bytes);
}
