//! The data that a user's jobs on a machine collect for the [selection](crate::coll::selection) of collectives: fitted
//! models, and rules from measured calls, in the file of measured quantities.
//!
//! Rank 0 publishes the contents of its file before the ranks connect, so that all ranks select the same without a
//! message; the other ranks publish the cut-offs of their nodes. The first job on a device measures a model, for at
//! most 20 ms, unless ranks share processors. Rank 0 adds the rules of its teams to the file at the end. If rank 0 has
//! no writable folder, the table selects.

use std::time::Duration;

use crate::bootstrap::Bootstrap;
use crate::cache::{CacheFile, Published};
use crate::calibration;
use crate::coll;
use crate::coll::selection::{Rules, Selection};
use crate::device::MessageCutOffs;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::model::{Models, Transfers};
use crate::settings::{CacheFolder, Settings};

/// The devices whose values are stored.
const DEVICES: [&str; 5] = ["shm", "verbs", "route", "tcp", "ofi"];
/// Maximum number of bytes of the rules of a device in the file, and of those that are published.
const MAX_KEPT: usize = 50 << 10;
const MAX_PUBLISHED: usize = 5 << 10;
/// Maximum number of bytes of other values that are published.
const MAX_OTHER: usize = 6 << 10;
/// Maximum time for which the first job measures.
const LIMIT: Duration = Duration::from_millis(20);

/// The name of the rules of a device in the table of measured quantities.
fn name(device: &str) -> String {
    format!("collectives {device}")
}

fn parse(lines: &str) -> Option<Rules> {
    lines.parse().ok()
}

/// The rules in the file of a device.
fn rules(settings: &Settings, device: &str) -> Rules {
    CacheFile::new(settings).and_then(|file| file.read()?.get(&name(device), parse)).unwrap_or_default()
}

/// The rules of the setting `FARSIDE_COLL`.
///
/// # Errors
/// `Setting`, with the item or line that cannot be read, and the allowed forms.
pub fn user_rules(settings: &Settings) -> Result<Rules> {
    Rules::of_setting(&settings.coll).map_err(|why| Error::new(ErrorKind::Setting, "read the settings").cause(why))
}

/// The selection of a job of this user on this machine and a device.
///
/// # Errors
/// Those of [`user_rules`].
pub fn selection(settings: &Settings, device: &str) -> Result<Selection> {
    let model = Models::load(settings, device).map(|models| models.p_log_p().clone());
    Ok(Selection { user: user_rules(settings)?, measured: rules(settings, device), model })
}

/// Publishes contents of this rank's file: rank 0 all values, the other ranks the cut-offs of their nodes. The other
/// ranks see them after a fence. Returns the file.
pub(crate) fn publish(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Option<CacheFile>> {
    let (is_first, size) = (bootstrap.rank() == 0, bootstrap.size().into());
    let Some(file) = CacheFile::new(settings).map(|file| file.reports(is_first)) else {
        Published::put(None, bootstrap)?;
        return Ok(None);
    };
    let published = |of: &str, lines: String| {
        let is_one = |name: fn(&str) -> String| is_first && DEVICES.iter().any(|device| name(device) == of);
        if is_one(name) {
            return Some(parse(&lines)?.of_at_most(size).last(MAX_PUBLISHED));
        }
        let is_known = of == calibration::NAME || is_one(Models::name);
        (is_known && lines.len() <= MAX_OTHER).then_some(lines)
    };
    let table = file.read().unwrap_or_default().changed(published);
    let keeps = is_first && file.replace().is_ok();
    Published::put(Some(&Published { table, keeps }), bootstrap)?;
    Ok(Some(file))
}

/// Gives all ranks the values that rank 0 has published; without a published model, one is measured if it can be
/// stored. Collective.
///
/// # Errors
/// `PeerLost`, `Launcher`, `Protocol`.
pub(crate) fn begin(job: &Job) -> Result<()> {
    let device = job.device().capabilities().name;
    if !DEVICES.contains(&device) || job.size() == 1 {
        return Ok(());
    }
    let Some(Published { table, keeps }) = Published::get(0, &mut **job.bootstrap.borrow_mut())? else { return Ok(()) };
    let models = match table.get(&Models::name(device), |lines| Models::parse(device, lines)) {
        Some(models) => Some(models),
        // Otherwise each job would measure.
        None if !keeps => return Ok(()),
        None => {
            let models = measured(job)?;
            if job.rank() == 0
                && let Some(models) = &models
            {
                // Models that another job has stored meanwhile stay: `farside tune` measures longer.
                let kept = models.keep(job.settings(), |others| others.is_none());
                match kept {
                    Err(e) if models.are_of_loaded_processors() => tracing::info!("{e}"),
                    kept => drop(kept.inspect_err(|e| tracing::warn!("{e}"))),
                }
            }
            models
        }
    };
    if let Some(Transfers { cut_offs, read_inter }) = models.as_ref().and_then(Models::transfers) {
        let (by, read_inter) = (&job.settings().transfer, usize::try_from(*read_inter).unwrap_or(usize::MAX));
        job.cut_offs.set(cut_offs.adjusted(by));
        job.message_cut_offs.set(MessageCutOffs { read_inter, ..job.message_cut_offs() }.adjusted(by));
    }
    let rules = table.get(&name(device), parse).unwrap_or_default();
    job.calls().tuning.keeps.set(job.rank() == 0);
    job.calls().tuning.begin(rules, models.map(|models| models.p_log_p().clone()));
    Ok(())
}

/// Measures a model, unless ranks share the processors of rank 0's node, or there is one rank. Collective.
pub(crate) fn measured(job: &Job) -> Result<Option<Models>> {
    if job.size() == 1 {
        return Ok(None);
    }
    let world = job.world()?;
    let is_oversubscribed = coll::broadcast(&world, 0, &[u8::from(job.is_on_oversubscribed_node())])? != [0];
    let measured = if is_oversubscribed { Ok(None) } else { Models::measure(job, world.members(), LIMIT).map(Some) };
    let models = measured.or_else(|e| match e.kind() {
        // Rank 0 had too little time; the other ranks are informed that it has no model.
        ErrorKind::Timeout => Ok(None),
        ErrorKind::Aborted if job.rank() > 0 => Ok(None),
        _ => Err(e),
    })?;
    // No rank leaves this call while another still polls in it: that one has not registered the handlers of its
    // program, so it could not receive messages of the program.
    job.wait("select collectives", || Ok(job.active_messages().is_quiet().then_some(())))?;
    job.bootstrap.borrow_mut().fence()?;
    Ok(models)
}

/// Adds the rules that teams of rank 0 have measured to the file.
pub(crate) fn keep(job: &Job) {
    let tuning = &job.calls().tuning;
    let (new, load) = tuning.measured();
    if !tuning.keeps.get() || new.is_empty() {
        return;
    }
    let Some(file) = CacheFile::new(job.settings()) else { return };
    let with = |old: Option<&str>| {
        let mut all = old.and_then(parse).unwrap_or_default();
        new.iter().cloned().for_each(|rule| all.set(rule));
        Some(all.last(MAX_KEPT))
    };
    let name = name(job.device().capabilities().name);
    if let Err(e) = file.replace().and_then(|replacement| replacement.set(&name, load, with)) {
        tracing::warn!("measured choices of collective algorithms are not stored: {e}");
    }
}

/// The rules that jobs on this machine have measured, and their file, for `farside info`.
#[must_use]
pub fn report(settings: &Settings) -> String {
    if settings.calibration == CacheFolder::Off {
        return "off: by FARSIDE_COLL and the table".into();
    }
    let of = |device| {
        let count = rules(settings, device).iter().count();
        let file = CacheFile::new(settings).filter(|_| count > 0)?;
        Some(format!("{count} rules measured on {device} ({})", file.file().display()))
    };
    let all: Vec<String> = DEVICES.into_iter().filter_map(of).collect();
    if all.is_empty() { "by the table, until a job has measured".into() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum that rank 0 publishes fits into a value.
    #[test]
    fn values_of_all_devices_can_be_published() {
        let most = DEVICES.len() * (MAX_PUBLISHED + MAX_OTHER) + MAX_OTHER + 1024;
        assert!(most < crate::bootstrap::VALUE_MAX, "{most}");
    }

    #[test]
    fn files_have_the_last_rules() {
        let mut rules = Rules::default();
        for ranks in 2..500 {
            rules.set(format!("allreduce {ranks} 8-15 * ring").parse().unwrap());
        }
        rules.set("allreduce 2 8-15 * butterfly".parse().unwrap());
        let (text, last) = (rules.last(2000), rules.iter().last().unwrap().to_string());
        assert!(text.len() <= 2000 && text.ends_with(&format!("{last}\n")) && last.starts_with("allreduce 2 8-15"));
        assert!(text.parse::<Rules>().unwrap().iter().count() > 30);
        assert_eq!(rules.of_at_most(10).iter().count(), 9);
    }
}
