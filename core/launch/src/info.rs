//! `farside info`: devices and limits of this machine, and the origin of each setting.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use farside_core::bootstrap::detect::{Start, choose};
use farside_core::device::report::devices;
use farside_core::model::{Models, Primitive};
use farside_core::settings::{Origin, Settings, TABLE};
use farside_core::{Error, Result};
use farside_core::{calibration, tuning};
use serde_json::{Value, json};

use crate::collectives::{self, Question};
use crate::limits::{Amount, Limits, Pair};

/// Prints the report on standard output, as text or as JSON.
///
/// # Errors
/// `Setting` if a setting has a value that is not allowed; `System` if the report cannot be written.
pub(crate) fn print(as_json: bool) -> Result<()> {
    let settings = Settings::from_env()?;
    farside_core::mistyped::warn();
    tuning::user_rules(&settings)?;
    let limits = Limits::now(Path::new(&settings.shm_dir));
    let start = choose(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()));
    let text =
        if as_json { format!("{:#}\n", report(&settings, &limits, &start)) } else { text(&settings, &limits, &start) };
    std::io::stdout().write_all(text.as_bytes()).map_err(|e| Error::system("write the report", e))
}

/// Answers a question about collectives, according to the settings and to the measurements of jobs on this machine.
///
/// # Errors
/// Those of [`collectives::print`]; `Setting`.
pub(crate) fn collectives(question: &Question) -> Result<()> {
    let settings = Settings::from_env()?;
    farside_core::mistyped::warn();
    let of = |device| tuning::selection(&settings, device);
    // Ranks on several nodes use verbs alone or together with shared memory.
    let mut selection = of(if question.is_on_one_node() { "shm" } else { "route" })?;
    if !question.is_on_one_node() && selection.model.is_none() && selection.measured.is_empty() {
        selection = of("verbs")?;
    }
    collectives::print(question, &selection)
}

fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Default => "default",
        Origin::Environment => "environment",
    }
}

fn launcher(start: &Result<Start>) -> String {
    match start {
        Ok(Start::Singleton) => "none: a program started here is rank 0 of 1".into(),
        Ok(Start::Pmi1Socket { rank, size, .. }) => format!("PMI-1, a socket left open: rank {rank} of {size}"),
        Ok(Start::Pmi2Socket { rank, .. }) => format!("PMI-2, a socket left open: rank {rank}"),
        Ok(Start::Pmix { namespace, rank }) => format!("PMIx, job {namespace}: rank {rank}"),
        Ok(Start::Pmi1Port { address, id }) => format!("PMI-1 at {address}, process {id}"),
        Err(e) => format!("unusable: {e}"),
    }
}

/// The stored models of a device.
struct Stored {
    device: &'static str,
    file: PathBuf,
    age: Option<Duration>,
    models: Models,
}

/// The models that are stored for this machine, by device.
fn stored(settings: &Settings) -> Vec<Stored> {
    // Jobs of several nodes use two devices together.
    let names = devices(settings).into_iter().map(|device| device.name).chain(["route"]);
    let stored = names.filter_map(|device| {
        let (models, file) = (Models::load(settings, device)?, Models::file(settings)?);
        let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
        Some(Stored { device, file, age: written.and_then(|written| written.elapsed().ok()), models })
    });
    stored.collect()
}

impl Stored {
    /// The residuals of a primitive, by model.
    fn residuals(&self, primitive: Primitive) -> Vec<(String, f64)> {
        let Some(fits) = self.models.of(primitive) else { return Vec::new() };
        let lo_p = fits.lo_p.iter().map(|(posting, fitted)| (format!("LoP {}", posting.name()), fitted.residual));
        let fixed = [("LogGP".to_owned(), fits.log_gp.residual), ("pLogP".to_owned(), fits.p_log_p.residual)];
        fixed.into_iter().chain(lo_p).collect()
    }

    fn text(&self) -> String {
        let each = |primitive: Primitive| {
            let residuals =
                self.residuals(primitive).into_iter().map(|(name, part)| format!("{name} {:.1} %", 100.0 * part));
            format!("{} {}", primitive.name(), residuals.collect::<Vec<_>>().join(", "))
        };
        let known = Primitive::ALL.into_iter().filter(|primitive| self.models.of(*primitive).is_some());
        let residuals: Vec<_> = known.map(each).collect();
        let age = self.age.map_or("at an unknown time".to_owned(), |age| format!("{} ago", span(age)));
        let cut_offs = self.models.cut_offs().map_or(String::new(), |cut_offs| format!("; cut-offs {cut_offs}"));
        let file = self.file.display();
        format!("{}: residuals: {}{cut_offs} ({file}, written {age})", self.device, residuals.join("; "))
    }

    fn json(&self) -> Value {
        let of = |primitive: Primitive| {
            Value::from_iter(self.residuals(primitive).into_iter().map(|(name, part)| (name, Value::from(part))))
        };
        let residuals = Value::from_iter(Primitive::ALL.map(|primitive| (primitive.name().to_owned(), of(primitive))));
        let age = self.age.map(|age| age.as_secs());
        let cut_offs = self.models.cut_offs();
        json!({ "device": self.device, "file": self.file, "age_seconds": age, "residuals": residuals, "cut_offs": cut_offs })
    }
}

/// A time in the largest unit in which it is at least one.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute")];
    let (length, name) = units.into_iter().find(|(length, _)| seconds >= *length).unwrap_or((1, "second"));
    let count = seconds / length;
    format!("{count} {name}{}", if count == 1 { "" } else { "s" })
}

fn report(settings: &Settings, limits: &Limits, start: &Result<Start>) -> Value {
    let devices: Vec<_> = devices(settings)
        .into_iter()
        .map(|d| match d.usable {
            Ok(can) => json!({ "name": d.name, "usable": true, "capabilities": can, "ports": d.ports }),
            Err(why) => json!({ "name": d.name, "usable": false, "why": why, "ports": d.ports }),
        })
        .collect();
    let (cut_offs, collectives) = (calibration::report(settings), tuning::report(settings));
    let models: Vec<_> = stored(settings).iter().map(Stored::json).collect();
    let settings: Vec<_> =
        settings.origins().map(|(n, v, o)| json!({ "name": n, "value": v, "origin": origin(o) })).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "devices": devices,
        "cut_offs": cut_offs,
        "collectives": collectives,
        "models": models,
        "limits": limits,
        "mpi": mpi_libraries(),
        "launcher": { "usable": start.is_ok(), "text": launcher(start) },
        "settings": settings,
    })
}

fn text(settings: &Settings, limits: &Limits, start: &Result<Start>) -> String {
    let mut out = format!("farside {}\n\ndevices\n", env!("CARGO_PKG_VERSION"));
    let mut row = |name: &str, value: String| out.push_str(&format!("  {name:<24} {value}\n"));
    for device in devices(settings) {
        row(device.name, device.usable.unwrap_or_else(|why| format!("not used: {why}")));
        device.ports.into_iter().for_each(|port| row("", format!("- {port}")));
    }
    row("", String::new());
    let unknown = || "unknown".to_owned();
    let pair = |p: Pair, show: fn(Amount) -> String| format!("{} (may be raised to {})", show(p.soft), show(p.hard));
    let bytes = |n: Amount| n.map_or("no limit".into(), amount);
    let count = |n: Amount| n.map_or("no limit".into(), |n| n.to_string());
    let shm = limits.shared_memory_bytes;
    let title = format!("room in {}", settings.shm_dir);
    row("locked memory", pair(limits.locked_memory_bytes, bytes));
    row("open descriptors", pair(limits.descriptors, count));
    row(&title, shm.map_or_else(unknown, |r| format!("{} free of {}", amount(r.free), amount(r.size))));
    row("ptrace scope", limits.ptrace_scope.map_or("no such restriction".into(), |n| n.to_string()));
    row("cores", limits.cores.to_string());
    row("kernel", limits.kernel.clone().unwrap_or_else(unknown));
    row("page", format!("{} bytes", limits.page_bytes));
    row("huge pages", limits.huge_pages.clone().unwrap_or_else(unknown));
    row("huge pages, shared", limits.huge_pages_shared.clone().unwrap_or_else(unknown));
    let mpi = mpi_libraries();
    let missing = || "no library in ../lib beside this command".to_owned();
    row("MPI libraries", if mpi.is_empty() { missing() } else { mpi.join(", ") });
    row("launcher", launcher(start));
    row("cut-offs", calibration::report(settings));
    row("collectives", tuning::report(settings));
    let stored = stored(settings);
    if stored.is_empty() {
        row("models", "none: `farside tune` measures them".into());
    }
    stored.iter().for_each(|stored| row("models", stored.text()));
    row("", String::new());
    for ((name, value, from), setting) in settings.origins().zip(TABLE) {
        row(name, format!("{value}  ({}; {})", origin(from), setting.values));
    }
    out.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The MPI libraries that are installed with this command: for C, for Fortran, and to check calls.
fn mpi_libraries() -> Vec<&'static str> {
    let names = ["libmpi_abi.so.1", "libmpifort_abi.so.1", "libfarside_verify.so"];
    let Ok(place) = std::env::current_exe() else { return Vec::new() };
    names.into_iter().filter(|name| place.with_file_name("../lib").join(name).exists()).collect()
}

/// A number of bytes with a unit.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|&i| bytes >> (10 * i) < 1024).unwrap_or(UNITS.len() - 1);
    if unit == 0 {
        return format!("{bytes} bytes");
    }
    format!("{:.1} {}", bytes as f64 / (1u64 << (10 * unit)) as f64, UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_has_the_unit_that_reads_best() {
        assert_eq!(amount(0), "0 bytes");
        assert_eq!(amount(1023), "1023 bytes");
        assert_eq!(amount(1536), "1.5 KiB");
        assert_eq!(amount(u64::MAX), "16777216.0 TiB");
    }

    #[test]
    fn span_has_the_largest_unit() {
        let spans = [0, 1, 119, 7200, 200_000].map(|seconds| span(Duration::from_secs(seconds)));
        assert_eq!(spans, ["0 seconds", "1 second", "1 minute", "2 hours", "2 days"]);
    }

    #[test]
    fn report_has_every_device_and_setting() {
        let settings = Settings::from_lookup(|_| None).unwrap();
        let limits = Limits::now(Path::new("/"));
        let value = report(&settings, &limits, &Ok(Start::Singleton));
        assert_eq!(value["settings"].as_array().unwrap().len(), TABLE.len());
        assert_eq!(value["devices"].as_array().unwrap().len(), devices(&settings).len());
        let text = text(&settings, &limits, &Ok(Start::Singleton));
        assert!(
            TABLE.iter().all(|s| text.contains(s.name)) && devices(&settings).iter().all(|d| text.contains(d.name))
        );
    }
}
