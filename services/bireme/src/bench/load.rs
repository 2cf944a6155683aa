//! The arguments of a load, and the function that applies a load to an endpoint.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::UnknownArgumentValueParser;

use super::closed_loop::closed_loop;
use super::fixed_rate::{Schedule, fixed_rate};
use super::queues::{Queues, Watch};
use super::tally::Tally;
use super::workload::{Workload, random};
use crate::arguments::parse_duration;
use crate::error::{CliError, Result};

/// The default number of requests at the same time in a closed loop.
const CONCURRENCY_CLOSED: usize = 16;

/// The default maximum number of requests at the same time at a fixed rate. It is high, because requests beyond it
/// start late.
const CONCURRENCY_FIXED_RATE: usize = 1024;

/// The arguments of a load.
#[derive(Clone, Debug, Args)]
pub struct LoadArgs {
    /// The duration of the load
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = positive, help_heading = "Load")]
    pub seconds: f64,
    /// Refused, with a hint at --seconds: other load generators have a flag of this name.
    #[arg(long, hide = true, value_parser = UnknownArgumentValueParser::suggest_arg("--seconds"))]
    duration: Option<Infallible>,
    /// Stop after so many requests, if --seconds are not over before; with
    /// --poisson after about so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Load")]
    requests: Option<u64>,
    /// Requests at the same time [default: 16; with --rate at most 1024]
    #[arg(long, value_name = "N", value_parser = at_least_1, help_heading = "Load")]
    concurrency: Option<usize>,
    /// Requests per second, started on schedule however long earlier ones take
    #[arg(long, value_name = "REQUESTS", value_parser = positive, help_heading = "Load")]
    pub rate: Option<f64>,
    /// Start the requests at random times, as independent callers do (a Poisson
    /// process), instead of at equal intervals
    #[arg(long, requires = "rate", help_heading = "Load")]
    pub poisson: bool,
    /// Threads that make load [default: one per core]
    #[arg(long, value_name = "N", value_parser = at_least_1, help_heading = "Load")]
    pub threads: Option<usize>,
    /// The interval at which the nodes' queues are sampled, for --json [default: never]
    #[arg(long, value_name = "TIME", value_parser = parse_duration, help_heading = "Load")]
    sample: Option<Duration>,
    /// The seed of random requests
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Load")]
    pub seed: u64,
}

/// Parses a number above 0 and up to 10 million.
pub fn positive(text: &str) -> std::result::Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() && number > 0.0 && number <= 1e7 => Ok(number),
        _ => Err("give a number above 0 and up to 10 million".into()),
    }
}

/// Parses a whole number from 1 to 1,048,576.
pub fn at_least_1(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=1 << 20).contains(&number) => Ok(number),
        _ => Err("give a whole number from 1 to 1048576".into()),
    }
}

impl LoadArgs {
    /// Returns the maximum number of requests at the same time.
    pub fn concurrency(&self) -> usize {
        let default = if self.rate.is_some() { CONCURRENCY_FIXED_RATE } else { CONCURRENCY_CLOSED };
        self.concurrency.unwrap_or(default)
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds)
    }

    /// Returns the duration of a schedule at `rate`: the time after which as many requests are due as --requests asks
    /// for (on average, if they are due at random times), but at most --seconds.
    fn time_at(&self, rate: f64) -> Duration {
        let all = self.requests.map(|requests| requests as f64 / rate);
        // A time that is too long for a `Duration` is longer than --seconds.
        let all = all.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        all.map_or(self.time(), |all| all.min(self.time()))
    }
}

/// The measurements of a load.
#[derive(Debug)]
pub struct Measured {
    /// Counts and latencies.
    pub tally: Tally,
    /// The time from the load's start until its last request has ended, in seconds.
    pub seconds: f64,
    /// The CPU time of this process during the load, in microseconds.
    pub client_cpu_us: u64,
    /// Samples of the nodes' queues.
    pub queues: Vec<Queues>,
}

/// Applies the load to the endpoint. `watch` is the node whose queues are sampled.
///
/// # Errors
/// If all requests failed, the fault of one of them. Also fails if a task of the load ended early.
pub async fn apply_load<W: Workload>(
    load: &LoadArgs,
    watch: Watch,
    workload: W,
) -> Result<Measured> {
    let workload = Arc::new(workload);
    let sampling = load.sample.map(|every| watch.sample(every));
    let cpu = process::Usage::now().cpu_us;
    let began = Instant::now();
    let tally = match load.rate {
        None => {
            let requests = load.requests.unwrap_or(u64::MAX);
            closed_loop(workload, load.concurrency(), load.time(), requests).await
        }
        Some(rate) => {
            let random = load.poisson.then(|| random(load.seed, u64::MAX));
            let schedule = Schedule { rate, time: load.time_at(rate), random };
            fixed_rate(workload, schedule, load.concurrency()).await
        }
    };
    // Take these measurements before the sampling ends, because ending it is not part of the load.
    let seconds = began.elapsed().as_secs_f64();
    let client_cpu_us = process::Usage::now().cpu_us - cpu;
    let queues = match sampling {
        Some(sampling) => sampling.end().await,
        None => Vec::new(),
    };
    let tally = tally.map_err(|error| CliError::usage(format!("the load ended early: {error}")))?;
    if let (0, Some(fault)) = (tally.requests(), tally.first_fault()) {
        return Err(fault.clone().into());
    }
    Ok(Measured { tally, seconds, client_cpu_us, queues })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_bounds() {
        assert_eq!(positive("0.5"), Ok(0.5));
        assert!(["0", "-1", "NaN", "inf", "x", "1e9"].iter().all(|text| positive(text).is_err()));
        assert_eq!(at_least_1("3"), Ok(3));
        assert!(["0", "-1", "x", "2000000"].iter().all(|text| at_least_1(text).is_err()));
    }
}
