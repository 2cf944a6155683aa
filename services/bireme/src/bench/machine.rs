//! The machine that generates the load.

use serde::Serialize;

/// A machine's description, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Machine {
    /// The CPU's name.
    pub cpu: String,
    /// The number of cores that this process may use.
    pub cores: usize,
    /// Memory that this process may use, in bytes.
    pub memory_bytes: u64,
    /// The kernel's release.
    pub kernel: String,
    /// The profile with which this program was compiled: `release`, or `dev`.
    pub build: &'static str,
}

impl Machine {
    /// Describes this machine.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            cpu: cpu_name(&read("/proc/cpuinfo")),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_bytes: process::memory_bytes().unwrap_or(0),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            build: if cfg!(debug_assertions) { "dev" } else { "release" },
        }
    }
}

fn cpu_name(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        line.split_once(':').map(|(_, value)| value.trim().to_owned())
    };
    value("model name").or_else(|| value("CPU part")).unwrap_or_else(|| "unknown CPU".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpus_name_is_read_from_proc() {
        assert_eq!(cpu_name("processor\t: 0\nmodel name\t: A CPU @ 2 GHz\n"), "A CPU @ 2 GHz");
        assert_eq!(cpu_name(""), "unknown CPU");
        assert!(Machine::here().cores > 0);
    }
}
