//! The choice of a provider.

use std::sync::Arc;

use super::fabric::{Guarantees, Offer, Offers};
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

/// The offers of one provider, with as many guarantees as it gives; or those of all, for a list.
fn offers(functions: &Arc<Functions>, provider: Option<&str>) -> std::result::Result<Offers, String> {
    let ask = |delivers, orders| Offers::ask(functions, provider, Guarantees { delivers, orders });
    let found = match provider {
        Some(_) => ask(true, true).or_else(|_| ask(true, false)).or_else(|_| ask(false, false)),
        None => ask(false, false),
    };
    found.map_err(|failure| failure.to_string())
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
    let others = || offers(&functions, None).map_or_else(|_| "none".into(), |all| names(&all.all()));
    let Some(name) = settings.ofi_provider.as_deref() else {
        let of = |name: &&str| {
            let found = offers(&functions, Some(name)).ok()?;
            let nth = found.all().iter().position(|offer| offer.provider == *name)?;
            Some((found, nth))
        };
        return PREFERRED.iter().find_map(of).ok_or_else(|| {
            let preferred = PREFERRED.join(", ");
            let e = fail(ErrorKind::Unsupported).cause(format!("there is no network of the providers {preferred}"));
            e.remedy(format!("set FARSIDE_OFI_PROVIDER to one of: {}", others()))
        });
    };
    let found = offers(&functions, Some(name)).map_err(|why| {
        let cause = format!("provider {name} offers no endpoint with messages and remote access: {why}");
        let e = fail(ErrorKind::Unsupported).cause(cause);
        e.remedy(format!("set FARSIDE_OFI_PROVIDER to one of: {}", others()))
    })?;
    Ok((found, 0))
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
    let mut providers: Vec<(&str, Vec<&str>)> = Vec::new();
    for offer in &all {
        let at = providers.iter().position(|(name, _)| *name == offer.provider).unwrap_or_else(|| {
            providers.push((&offer.provider, Vec::new()));
            providers.len() - 1
        });
        if !providers[at].1.contains(&offer.domain.as_str()) {
            providers[at].1.push(&offer.domain);
        }
    }
    let line = |(provider, domains): &(&str, Vec<&str>)| {
        let used = match &chosen {
            Ok(chosen) if chosen.provider == *provider => format!("used at {} ({})", chosen.domain, chosen.fabric),
            Ok(_) if settings.ofi_provider.is_some() => "not used: FARSIDE_OFI_PROVIDER names another".into(),
            Ok(chosen) => format!("not used: {} is better", chosen.provider),
            Err(_) => format!("not used by itself: set FARSIDE_OFI_PROVIDER=\"{provider}\""),
        };
        format!("{provider} at {}: {used}", domains.join(", "))
    };
    let ports = providers.iter().map(line).collect();
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
    /// The abilities of the provider, in words.
    pub(super) fn text(&self) -> String {
        let placed = match (self.delivers, self.orders) {
            (true, true) => "writes are visible when they complete, and before later messages",
            (true, false) => "writes are visible when they complete",
            (false, _) => "writes are pushed by reads",
        };
        let progress = if self.progresses { "progress by itself" } else { "progress while a rank is in the runtime" };
        format!("provider {} at {}: {placed}, {progress}", self.provider, self.domain)
    }
}
