//! The usable devices, and the reasons why others are not usable, for `farside info`.

#[cfg(feature = "verbs")]
use super::verbs;
use super::{shm, tcp};
use crate::settings::Settings;

/// One device, and whether it can be used here.
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
    let route = match (&shm, &verbs) {
        (Err(e), _) => Err(format!("no shared memory: {e}")),
        (_, Err(e)) => Err(format!("no verbs: {e}")),
        _ => Ok(
            "ranks of one node by shm, between nodes by verbs; a window over ranks of one node is mapped, any other \
                 is the HCA's for all its ranks, those of one node too, so that its atomics are of one kind"
                .into(),
        ),
    };
    let report = |name, usable, ports| DeviceReport { name, usable, ports };
    let not_built = || Err("not built yet".into());
    vec![
        report("shm", shm, Vec::new()),
        report("verbs", verbs, ports),
        report("route", route, Vec::new()),
        report("tcp", tcp::probe(settings).map_err(|e| e.to_string()), tcp::ports()),
        report("sim", not_built(), Vec::new()),
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
