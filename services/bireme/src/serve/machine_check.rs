//! Checks that a node's settings fit the machine, before anything is started.

use bytesize::ByteSize;
use io_node::IoConfig;

use crate::error::{CliError, Result};
use crate::machine;

/// Refuses more cores than this process may use, and a RAM tier that is larger than the memory.
pub fn check_machine(config: &IoConfig) -> Result<()> {
    check(config, machine::cores(), process::memory_bytes())
}

fn check(config: &IoConfig, cores: usize, memory_bytes: Option<u64>) -> Result<()> {
    if config.cores > cores && cores > 0 {
        let asked = config.cores;
        let noun = if cores == 1 { "core" } else { "cores" };
        return Err(CliError::usage(format!(
            "`cores` is {asked}, and this process may use {cores} {noun}; ask for at most that"
        )));
    }
    match memory_bytes.map(ByteSize::b).filter(|memory| config.ram_tier > *memory) {
        None => Ok(()),
        Some(memory) => Err(CliError::usage(format!(
            "`ram_tier` is {}, and there is {} of memory; ask for less",
            config.ram_tier.display().iec(),
            memory.display().iec()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused() {
        let said = |cores, ram_tier, memory| {
            let config = IoConfig { cores, ram_tier, ..Default::default() };
            check(&config, 2, memory).map_err(|error| error.message().to_owned())
        };
        let gib = ByteSize::gib;
        assert_eq!(said(2, gib(8), Some(8 << 30)), Ok(()));
        assert_eq!(said(0, gib(9), None), Ok(()));
        let refused = said(3, gib(1), None).unwrap_err();
        assert!(refused.starts_with("`cores` is 3, and this process may use 2 cores;"));
        let refused = said(0, ByteSize::tib(1), Some(8 << 30)).unwrap_err();
        assert!(refused.starts_with("`ram_tier` is 1.0 TiB, and there is 8.0 GiB of memory;"));
    }
}
