//! Properties of the machine, which are needed to interpret measurements.

use std::fs;

use serde::{Deserialize, Serialize};

/// The machine and the time of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// The processor's name, or "unknown".
    pub(crate) cpu: String,
    /// The number of cores that this process may use.
    pub(crate) cores: usize,
    /// The kernel's release, or "unknown".
    pub(crate) kernel: String,
    /// Whether the machine is virtual, as far as the processor reports it.
    pub(crate) hypervisor: bool,
    /// The time in UTC, as RFC 3339.
    pub(crate) date: String,
}

impl Machine {
    /// The current machine and time.
    pub(crate) fn here() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: if kernel.trim().is_empty() { "unknown" } else { kernel.trim() }.to_owned(),
            hypervisor: field(&cpuinfo, "flags").is_some_and(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            date: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        }
    }

    /// The machine in one line.
    pub(crate) fn line(&self) -> String {
        let below = if self.hypervisor { " (virtual machine)" } else { "" };
        format!("{}, {} cores{below}, Linux {}, {}", self.cpu, self.cores, self.kernel, self.date)
    }
}

/// The value of the first `name : value` line.
fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)
        .map(|(_, value)| value.trim())
        .filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_of_cpuinfo_is_found_whole() {
        let text = "processor\t: 0\nmodel name\t: A: 3 GHz\nflags\t\t: fpu hypervisor\n";
        assert_eq!(field(text, "model name"), Some("A: 3 GHz"));
        assert_eq!(field(text, "model"), None);
        assert_eq!(field("", "flags"), None);
    }

    #[test]
    fn here_has_no_empty_fact() {
        let machine = Machine::here();
        assert!(machine.cores > 0 && !machine.cpu.is_empty() && !machine.kernel.is_empty());
        assert!(machine.date.parse::<jiff::Timestamp>().is_ok(), "{}", machine.date);
    }
}
