//! The prices of requests to an object store.
//!
//! They are the list prices of S3 Standard in us-east-1 (aws.amazon.com/s3/pricing, November 2026). Reads within the
//! region cost nothing else. An operator who pays other prices can compute the cost from the counters of requests and
//! bytes.

/// The price of a million reads, in dollars.
const MILLION_READS_USD: f64 = 0.4;

/// The price of a million writes, copies and listings, in dollars.
const MILLION_WRITES_USD: f64 = 5.0;

/// Returns the price of `reads` reads and of `writes` writes, copies or listings, in dollars.
pub fn price_usd(reads: u64, writes: u64) -> f64 {
    reads as f64 * MILLION_READS_USD / 1e6 + writes as f64 * MILLION_WRITES_USD / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_cost_list_prices() {
        assert!((price_usd(30_000_000, 1000) - 12.005).abs() < 1e-9);
    }
}
