//! The usable devices, and the reasons why others are not usable, for `farside info`.

#[cfg(feature = "verbs")]
use super::verbs;
use super::{ofi, shm, tcp};
use crate::settings::Settings;

/// A device, and whether it can be used on this machine.
#[derive(Clone, Debug)]
pub struct DeviceReport {
    /// Name of the device.
    pub name: &'static str,
    /// Limits and guarantees; or the reason why the device is not usable, and a remedy.
    pub usable: Result<String, String>,
    /// Ports of the device, and why each is used or not.
    pub ports: Vec<String>,
}

/// Every device, best first.
#[must_use]
pub fn devices(settings: &Settings) -> Vec<DeviceReport> {
    let shm = shm::probe(settings).map_err(|e| e.to_string());
    let (verbs, ports) = verbs(settings);
    let tcp = tcp::probe(settings).map_err(|e| e.to_string());
    let (ofi, providers) = ofi::report(settings);
    let ofi = ofi.map_err(|e| e.to_string());
    let between =
        [("verbs", &verbs), ("tcp", &tcp), ("ofi", &ofi)].map(|(name, usable)| usable.is_ok().then_some(name));
    let route = match (&shm, between.into_iter().flatten().collect::<Vec<_>>().join(" or ")) {
        (Err(_), _) if settings.devices.is_none() => Err("no shared memory".into()),
        (_, between) if between.is_empty() => Err("no inter-node device".into()),
        (_, between) => Ok(format!("several devices in one job: shm intra-node, {between} inter-node")),
    };
    let report = |name, usable, ports| DeviceReport { name, usable, ports };
    vec![
        report("shm", shm, Vec::new()),
        report("verbs", verbs, ports),
        report("route", route, Vec::new()),
        report("tcp", tcp, tcp::ports()),
        report("ofi", ofi, providers),
        report("sim", Ok("Rust programs that start by `Job::run`: `farside sim`".into()), Vec::new()),
    ]
}

#[cfg(feature = "verbs")]
fn verbs(settings: &Settings) -> (Result<String, String>, Vec<String>) {
    let (usable, ports) = verbs::report(settings);
    (usable.map_err(|e| e.to_string()), ports)
}

#[cfg(not(feature = "verbs"))]
fn verbs(_: &Settings) -> (Result<String, String>, Vec<String>) {
    let why = "not built in: build with feature `verbs`, which needs the packages libibverbs-dev, librdmacm-dev, \
               libclang-dev, cmake and pkg-config";
    (Err(why.into()), Vec::new())
}
