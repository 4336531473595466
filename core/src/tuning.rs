//! What the jobs of a user on a machine learn for the [selection](crate::coll::selection) of collectives: fitted models,
//! and rules that calls have measured, in files of the user's cache folder.
//!
//! Rank 0 publishes what its files have before the ranks connect, so that all ranks select alike without a message. The
//! first job on a device measures a model, for at most 20 ms, unless ranks share processors. Rank 0 adds the rules of
//! its teams to the file at the end, but those that were measured on loaded processors. Where rank 0 has no folder that it can write, the table selects.

use std::str::Split;
use std::time::Duration;

use crate::bootstrap::Bootstrap;
use crate::cache::{CacheFile, Format};
use crate::coll;
use crate::coll::selection::{Rules, Selection};
use crate::device::MessageCutOffs;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::model::{Models, Transfers};
use crate::settings::{CacheFolder, Settings};
use crate::wire::{Reader, Writer};

const FILE: Format = Format { name: "collectives", line: "farside collectives 3" };
/// The devices of which files are published, before it is known which one connects the ranks.
const DEVICES: [&str; 4] = ["shm", "verbs", "route", "tcp"];
/// Maximum number of bytes of the rules in a file, of those that are published, and of the models that are.
const MOST_KEPT: usize = 60 << 10;
const MOST_RULES: usize = 16 << 10;
const MOST_MODELS: usize = 16 << 10;
/// Time for which the first job measures.
const LIMIT: Duration = Duration::from_millis(20);

fn cache(settings: &Settings, device: &str) -> Option<CacheFile> {
    CacheFile::new(settings, &FILE, &format!("{:?} {device}", settings.shm_user_memory))
}

/// Reads the lines of a file.
fn parse(lines: &mut Split<'_, char>) -> Option<Rules> {
    lines.collect::<Vec<_>>().join("\n").parse().ok()
}

/// The rules in the file of a device.
fn rules(settings: &Settings, device: &str) -> Rules {
    cache(settings, device).and_then(|cache| cache.read(parse)).unwrap_or_default()
}

/// The rules of the setting `FARSIDE_COLL`.
///
/// # Errors
/// `Setting`, naming the item or line that cannot be read, and what is allowed.
pub fn user_rules(settings: &Settings) -> Result<Rules> {
    Rules::of_setting(&settings.coll).map_err(|why| Error::new(ErrorKind::Setting, "read the settings").cause(why))
}

/// What a job of this user on this machine knows for the selection on a device.
///
/// # Errors
/// Those of [`user_rules`].
pub fn selection(settings: &Settings, device: &str) -> Result<Selection> {
    let model = Models::load(settings, device).map(|models| models.p_log_p().clone());
    Ok(Selection { user: user_rules(settings)?, measured: rules(settings, device), model })
}

fn key(device: &str) -> String {
    format!("tuning.{device}")
}

/// Publishes the files of rank 0, a value for each device; an empty one if it keeps no files. The other ranks see them after
/// a fence.
pub(crate) fn publish(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<()> {
    if bootstrap.rank() > 0 {
        return Ok(());
    }
    let size = bootstrap.size().into();
    for device in DEVICES {
        let models = Models::load(settings, device).map(|models| models.to_bytes());
        let models = models.filter(|bytes| bytes.len() <= MOST_MODELS);
        // Without models, whether they could be kept: otherwise each job would measure.
        let keeps = cache(settings, device).is_some_and(|cache| models.is_some() || cache.replace().is_ok());
        let value = if keeps {
            let rules = rules(settings, device).of_at_most(size).last(MOST_RULES);
            Writer::new().bytes(rules.as_bytes()).bytes(&models.unwrap_or_default()).done()
        } else {
            Vec::new()
        };
        bootstrap.put(&key(device), &value)?;
    }
    Ok(())
}

/// The rules and the model that were published; `None` if they are malformed, `Some(None)` if rank 0 keeps no files.
fn published(bytes: &[u8]) -> Option<Option<(Rules, Option<Models>)>> {
    if bytes.is_empty() {
        return Some(None);
    }
    let mut r = Reader::new(bytes);
    let (rules, models) = (std::str::from_utf8(r.bytes()?).ok()?, r.bytes()?);
    let models = if models.is_empty() { None } else { Some(Models::from_bytes(models)?) };
    r.is_empty().then_some(Some((rules.parse().ok()?, models)))
}

/// Gives all ranks the values that rank 0 has published; without a published model, one is measured. Collective.
///
/// # Errors
/// `PeerLost`, `Launcher`, `Protocol`.
pub(crate) fn begin(job: &Job) -> Result<()> {
    let device = job.device().capabilities().name;
    if !DEVICES.contains(&device) || job.size() == 1 {
        return Ok(());
    }
    let bytes = job.bootstrap.borrow_mut().get(&key(device))?;
    let found = published(&bytes).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, "select collectives").peer(0).cause("malformed rules or models from rank 0")
    })?;
    let Some((rules, models)) = found else { return Ok(()) };
    let models = match models {
        Some(models) => Some(models),
        None => {
            let models = measured(job)?;
            if job.rank() == 0
                && let Some(models) = &models
            {
                // Those that another job has stored meanwhile stay: `farside tune` measures longer.
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
        job.set_cut_offs(cut_offs.adjusted(by));
        job.set_message_cut_offs(MessageCutOffs { read_inter, ..job.message_cut_offs() }.adjusted(by));
    }
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
        // Rank 0 had not the time; the others learn that it has given up.
        ErrorKind::Timeout => Ok(None),
        ErrorKind::Aborted if job.rank() > 0 => Ok(None),
        _ => Err(e),
    })?;
    // Ranks that have not left yet poll, before their program can register handlers.
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
    let Some(cache) = cache(job.settings(), job.device().capabilities().name) else { return };
    let with = |old: Option<Rules>| {
        let mut all = old.unwrap_or_default();
        new.iter().cloned().for_each(|rule| all.set(rule));
        Some(all.last(MOST_KEPT))
    };
    if let Err(e) = cache.update(load, parse, with) {
        tracing::warn!("measured choices of collectives are not kept: {e}");
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
        let file = cache(settings, device).filter(|_| count > 0)?;
        Some(format!("{count} rules measured on {device} ({})", file.file().display()))
    };
    let all: Vec<String> = DEVICES.into_iter().filter_map(of).collect();
    if all.is_empty() { "by the table, until a job has measured".into() } else { all.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_is_read_back_and_garbage_is_refused() {
        let rules = "allreduce 4 1024-2047 one-node ring\n";
        let bytes = Writer::new().bytes(rules.as_bytes()).bytes(&[]).done();
        let (read, models) = published(&bytes).unwrap().unwrap();
        assert!(read.to_string().starts_with("allreduce 4 1024-2047 one-node ring") && models.is_none());
        assert!(published(&[]).unwrap().is_none());
        assert!((1..bytes.len()).all(|end| published(&bytes[..end]).is_none()));
        let wrong = Writer::new().bytes(b"allreduce 4").bytes(&[]).done();
        assert!(published(&wrong).is_none());
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
