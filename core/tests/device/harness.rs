//! The table of configurations, and functions that run a check over each of them.

use std::sync::Arc;

use farside_conformance::{Check, Setup, Subject};
use farside_core::Job;
use farside_core::device::loopback::{Hub, Loopback};
use farside_core::settings::Settings;

use crate::processes;

/// A configuration of the device.
#[derive(Debug)]
pub(crate) struct Config {
    /// Name, for messages.
    pub name: &'static str,
    /// Settings that differ from the defaults.
    pub set: &'static [(&'static str, &'static str)],
    /// Whether regions are in the user's memory.
    pub user: bool,
    /// The device, if it is not the one that the settings select; it connects threads only.
    pub device: Option<fn(&Arc<Hub>, u32) -> Loopback>,
}

impl Config {
    /// The settings of this configuration.
    pub(crate) fn settings(&self) -> Settings {
        settings(self.set)
    }

    /// The properties of the configuration on which checks depend.
    pub(crate) fn setup(&self) -> Setup {
        let ring = self.settings().ring(2);
        Setup {
            user_memory: self.user,
            private_pages: !self.is_tcp()
                && !ofi()
                && (!self.user || matches!(self.value(USER_MEMORY), None | Some("remap"))),
            quick: quick(),
            packet_room: match self.device {
                Some(_) => Some(Box::new(|_| 64..=64)),
                // Credits are returned when half of them are used.
                None if self.is_tcp() => Some(Box::new(|len| 64 / (1 + len / 2048)..=128 / (1 + len / 2048))),
                // The send queue of an HCA fills up at other lengths, and a provider has queues of its own.
                None if verbs() || ofi() => None,
                None => Some(Box::new(move |len| {
                    // At least two of the largest packets fit, wherever the ring starts and although less than a
                    // quarter of it may not be released yet; at most as many as it has slots.
                    let most = ring / (8 + len).next_multiple_of(32) + usize::from(len <= 48);
                    2..=most
                })),
            },
            ..Setup::default()
        }
    }

    /// Whether the device is tcp.
    fn is_tcp(&self) -> bool {
        self.value("FARSIDE_DEVICE") == Some("tcp")
    }

    /// The value of a setting, if this configuration changes it.
    pub(crate) fn value(&self, name: &str) -> Option<&'static str> {
        self.set.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }
}

/// Settings with the given values and defaults otherwise. The environment determines only the device.
pub(crate) fn settings(set: &[(&str, &str)]) -> Settings {
    let machine = |name: &str| {
        let device = matches!(name, "FARSIDE_DEVICE" | "FARSIDE_DEVICES" | "FARSIDE_TEST_NODES")
            || name.starts_with("FARSIDE_VERBS_")
            || name.starts_with("FARSIDE_OFI_");
        device.then(|| std::env::var(name).ok()).flatten()
    };
    let given = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
    Settings::from_lookup(|name| given(name).or_else(|| machine(name))).unwrap()
}

/// Whether the environment selects the verbs device, alone or between nodes with shared memory. In the second case
/// `FARSIDE_TEST_NODES` is 2, so that the team of all ranks spans nodes in every test and uses verbs.
pub(crate) fn verbs() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "verbs" || d == "route")
}

/// Whether an HCA executes operations on the memory of another node.
pub(crate) fn hca() -> bool {
    verbs() && std::env::var("FARSIDE_DEVICES").map_or(true, |list| list.contains("verbs"))
}

/// Whether the device is shared memory if a test does not name another one.
pub(crate) fn shm() -> bool {
    std::env::var("FARSIDE_DEVICE").map_or(true, |d| d == "auto" || d == "shm")
}

/// Whether the environment selects the ofi device.
pub(crate) fn ofi() -> bool {
    std::env::var("FARSIDE_DEVICE").is_ok_and(|d| d == "ofi")
}

/// Whether to run fewer rounds and combinations of every kind of test; meant for emulated machines.
pub(crate) fn quick() -> bool {
    std::env::var_os("FARSIDE_TEST_QUICK").is_some()
}

/// Every configuration of the device under test: if the environment selects tcp, those of tcp only.
pub(crate) fn configs() -> &'static [Config] {
    let tcp = || CONFIGS.iter().position(Config::is_tcp).zip(CONFIGS.iter().rposition(Config::is_tcp));
    match std::env::var("FARSIDE_DEVICE") {
        _ if verbs() => VERBS,
        _ if ofi() => OFI,
        Ok(device) if device == "tcp" => tcp().map_or(&[], |(first, last)| &CONFIGS[first..=last]),
        _ => CONFIGS,
    }
}

/// Over verbs no memory is mapped; the shortest queues are full most of the time.
const VERBS: &[Config] = &[
    Config { name: "verbs", set: &[], user: false, device: None },
    Config { name: "verbs, user memory, parking", set: &[("FARSIDE_WAIT", "park")], user: true, device: None },
    Config {
        name: "verbs, shortest queues",
        set: &[("FARSIDE_VERBS_QUEUE", "16"), ("FARSIDE_VERBS_RECEIVES", "32")],
        user: false,
        device: None,
    },
];

/// The device by libfabric, with the provider that the environment names.
const OFI: &[Config] = &[
    Config { name: "ofi", set: &[], user: false, device: None },
    Config { name: "ofi, user memory, parking", set: &[("FARSIDE_WAIT", "park")], user: true, device: None },
];

const TCP: &[(&str, &str)] = &[("FARSIDE_DEVICE", "tcp")];
pub(crate) const USER_MEMORY: &str = "FARSIDE_SHM_USER_MEMORY";

/// The configurations of the suite without verbs.
const CONFIGS: &[Config] = &[
    Config { name: "mapped", set: &[], user: false, device: None },
    Config { name: "mapped, parking", set: &[("FARSIDE_WAIT", "park")], user: false, device: None },
    Config { name: "unmapped", set: &[("FARSIDE_TEST_FAULT", "unmapped")], user: false, device: None },
    Config { name: "user memory, auto", set: &[], user: true, device: None },
    Config { name: "user memory, remap", set: &[(USER_MEMORY, "remap")], user: true, device: None },
    Config { name: "user memory, vm", set: &[(USER_MEMORY, "vm")], user: true, device: None },
    Config { name: "user memory, ring", set: &[(USER_MEMORY, "ring")], user: true, device: None },
    Config {
        name: "user memory, ring, smallest, parking",
        set: &[
            (USER_MEMORY, "ring"),
            ("FARSIDE_SHM_BOUNCE", "8192"),
            ("FARSIDE_SHM_RING", "8192"),
            ("FARSIDE_WAIT", "park"),
        ],
        user: true,
        device: None,
    },
    Config { name: "tcp", set: TCP, user: false, device: None },
    Config {
        name: "tcp, encrypted, user memory, parking",
        set: &[("FARSIDE_DEVICE", "tcp"), ("FARSIDE_TCP_ENCRYPT", "1"), ("FARSIDE_WAIT", "park")],
        user: true,
        device: None,
    },
    Config {
        name: "tcp, IPv6, user memory",
        set: &[("FARSIDE_DEVICE", "tcp"), ("FARSIDE_TCP_INTERFACE", "::1")],
        user: true,
        device: None,
    },
    Config { name: "loopback", set: &[], user: false, device: Some(Loopback::new) },
    Config {
        name: "loopback, minimal, parking",
        set: &[("FARSIDE_WAIT", "park")],
        user: true,
        device: Some(Loopback::minimal),
    },
    Config { name: "loopback without order and atomics", set: &[], user: true, device: Some(Loopback::bare) },
];

/// Runs a check over every configuration, as threads and then as processes (in a quick run over the first
/// configuration only). `test` is the path of the test with the crate's name.
pub(crate) fn each(test: &str, check: &Check) {
    if let Some(rank) = processes::Rank::from_env() {
        let config = &configs()[rank.config];
        return rank.run(&config.settings(), |job| (check.body)(job, &config.setup()));
    }
    for (index, config) in configs().iter().enumerate() {
        let settings = config.settings();
        let subject = Subject {
            name: config.name,
            setup: config.setup(),
            launch: &|ranks, body| {
                let hub = Hub::new(ranks);
                match config.device {
                    None => Job::threads_with(ranks as usize, &settings, body),
                    Some(device) => {
                        Job::threads_on(ranks as usize, &settings, |rank| Ok(Box::new(device(&hub, rank))), body)
                    }
                }
                .map(drop)
            },
        };
        let report = farside_conformance::run(&subject, |c| c.name == check.name);
        assert!(report.failed.is_empty(), "{}, {} threads: {report}", config.name, check.ranks);
        report.skipped.iter().for_each(|(_, why)| println!("skipped over {}: {why}", config.name));
        if quick() && index > 0 || config.device.is_some() {
            continue;
        }
        processes::run(test, index, check.ranks)
            .unwrap_or_else(|e| panic!("{}, {} processes: {e}", config.name, check.ranks));
    }
}
