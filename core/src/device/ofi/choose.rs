//! The choice of a provider.

use std::sync::Arc;

use super::fabric::{Offer, Offers};
use super::sys::{self, Functions};
use crate::error::{Error, ErrorKind, Result};
use crate::settings::Settings;

const OP: &str = "open the ofi device";
/// Providers of networks with remote access in hardware, best first. They are chosen by themselves.
const PREFERRED: [&str; 4] = ["cxi", "efa", "opx", "psm2"];
/// Folders in which the kernel lists adapters of these networks.
const ADAPTERS: [&str; 2] = ["/sys/class/infiniband", "/sys/class/cxi"];

fn fail(kind: ErrorKind) -> Error {
    Error::new(kind, OP).device("ofi")
}

/// Loads the library.
fn load() -> Result<Arc<Functions>> {
    let functions = Functions::load().map_err(|e| {
        let e = fail(ErrorKind::Unsupported).cause(e.to_string());
        e.remedy("install libfabric (Debian's libfabric1, or the vendor's), where the loader finds libfabric.so.1")
    })?;
    let version = functions.version();
    if version < sys::API {
        let text = |version: u32| format!("{}.{}", version >> 16, version & 0xffff);
        let e = fail(ErrorKind::Unsupported);
        let e = e.cause(format!("libfabric has version {}", text(version)));
        return Err(e.remedy(format!("install version {} or later", text(sys::API))));
    }
    Ok(Arc::new(functions))
}

/// The offers of providers, or of one of them: those whose writes complete when they are visible, if there are any.
fn offers(functions: &Arc<Functions>, provider: Option<&str>) -> std::result::Result<Offers, String> {
    let ask = |delivers| Offers::ask(functions, provider, delivers);
    ask(true).or_else(|_| ask(false)).map_err(|failure| failure.to_string())
}

/// The number of the best offer.
fn best(all: &[Offer], named: bool) -> Option<usize> {
    if named {
        return (!all.is_empty()).then_some(0);
    }
    PREFERRED.iter().find_map(|name| all.iter().position(|offer| offer.provider == *name))
}

/// Names of providers, each once.
fn names(all: &[Offer]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for offer in all {
        if !names.contains(&offer.provider.as_str()) {
            names.push(&offer.provider);
        }
    }
    names.join(", ")
}

/// The offers from which this rank chooses, and the number of the chosen one.
pub(super) fn choose(settings: &Settings) -> Result<(Offers, usize)> {
    let functions = load()?;
    let provider = settings.ofi_provider.as_deref();
    let found = offers(&functions, provider).map_err(|why| {
        let e = fail(ErrorKind::Unsupported);
        match provider {
            Some(name) => {
                let others = offers(&functions, None).map_or_else(|_| "none".into(), |all| names(&all.all()));
                e.cause(format!("provider {name} offers no endpoint with messages and remote access: {why}"))
                    .remedy(format!("set FARSIDE_OFI_PROVIDER to one of: {others}"))
            }
            None => e.cause(format!("no provider offers endpoints with messages and remote access: {why}")),
        }
    })?;
    let all = found.all();
    match best(&all, provider.is_some()) {
        Some(nth) => Ok((found, nth)),
        None => {
            let preferred = PREFERRED.join(", ");
            let e = fail(ErrorKind::Unsupported).cause(format!("there is no network of the providers {preferred}"));
            Err(e.remedy(format!("set FARSIDE_OFI_PROVIDER to one of: {}", names(&all))))
        }
    }
}

/// Whether a job without an HCA uses this device unless its settings name one: there is a network that only libfabric
/// reaches. Without an adapter of such a network, the library is not loaded.
pub(crate) fn is_preferred(settings: &Settings) -> bool {
    let has = |class: &&str| std::fs::read_dir(class).is_ok_and(|mut all| all.next().is_some());
    if !ADAPTERS.iter().any(has) {
        return false;
    }
    match choose(settings) {
        Ok((offers, nth)) => offers.all().get(nth).is_some_and(|offer| PREFERRED.contains(&offer.provider.as_str())),
        Err(e) => {
            tracing::info!("ofi is not used: {e}");
            false
        }
    }
}

/// Whether and how the device works here, and each offer with the reason why it is used or not, for `farside info`.
pub(crate) fn report(settings: &Settings) -> (Result<String>, Vec<String>) {
    let functions = match load() {
        Ok(functions) => functions,
        Err(e) => return (Err(e), Vec::new()),
    };
    let chosen = choose(settings).map(|(offers, nth)| offers.all().swap_remove(nth));
    let all = offers(&functions, None).map(|offers| offers.all()).unwrap_or_default();
    let line = |offer: &Offer| {
        let Offer { provider, domain, fabric, version, .. } = offer;
        let used = match &chosen {
            Ok(chosen) if chosen.provider == *provider && chosen.domain == *domain && chosen.fabric == *fabric => {
                "used".into()
            }
            Ok(chosen) => format!("not used: {} ({}) is", chosen.provider, chosen.domain),
            Err(_) => format!("not used by itself: set FARSIDE_OFI_PROVIDER={provider}"),
        };
        format!("{provider} {domain} on {fabric}, version {}.{}: {used}", version >> 16, version & 0xffff)
    };
    let mut ports: Vec<String> = all.iter().map(line).collect();
    ports.dedup();
    let usable = chosen.map(|offer| {
        let version = functions.version();
        let mut text = format!("libfabric {}.{}, {}", version >> 16, version & 0xffff, offer.text());
        if settings.ofi_provider.is_none() {
            text += "; on trusted networks only";
        }
        text
    });
    (usable, ports)
}

impl Offer {
    /// What the provider can do, in words.
    pub(super) fn text(&self) -> String {
        let placed = if self.delivers { "writes complete when they are visible" } else { "writes are pushed by reads" };
        let progress = if self.progresses { "progress by itself" } else { "progress while a rank is in the runtime" };
        format!("provider {} at {}: {placed}, {progress}", self.provider, self.domain)
    }
}
