//! What the jobs of a user on a machine learn for the [selection](crate::coll::selection) of collectives: fitted models,
//! and rules that calls have measured, in files of the user's cache folder.
//!
//! Rank 0 publishes what its files have before the ranks connect, so that all ranks select alike without a message. The
//! first job on a device measures a model, for at most 20 ms, unless ranks share processors. Rank 0 adds the rules of
//! its teams to the file at the end. Without files that can be read or written, the table selects.

use std::time::Duration;

use crate::bootstrap::Bootstrap;
use crate::cache::{CacheFile, Format};
use crate::coll;
use crate::coll::selection::{Rules, Selection};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::model::Models;
use crate::settings::{CacheFolder, Settings};
use crate::wire::{Reader, Writer};

const FILE: Format = Format { name: "collectives", line: "farside collectives 1" };
/// The devices of which files are published, before it is known which one connects the ranks.
const DEVICES: [&str; 3] = ["shm", "verbs", "route"];
const KEY: &str = "tuning";
/// Maximum number of rules in a file, and of bytes of those that are published for a device.
const MOST_RULES: usize = 1000;
const MOST_BYTES: usize = 16 << 10;
/// Time for which the first job measures.
const LIMIT: Duration = Duration::from_millis(20);

fn cache(settings: &Settings, device: &str) -> Option<CacheFile> {
    CacheFile::new(settings, &FILE, &format!("{:?} {device}", settings.shm_user_memory))
}

/// The rules in the file of a device.
fn rules(settings: &Settings, device: &str) -> Rules {
    let lines =
        cache(settings, device).and_then(|cache| cache.read(|lines| Some(lines.collect::<Vec<_>>().join("\n"))));
    lines.and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// What a job of this user on this machine knows for the selection on a device.
///
/// # Errors
/// `Setting` for a value of `FARSIDE_COLL` that cannot be read.
pub fn selection(settings: &Settings, device: &str) -> Result<Selection> {
    let model = Models::load(settings, device).map(|models| models.p_log_p().clone());
    Ok(Selection { user: Rules::of_setting(&settings.coll)?, measured: rules(settings, device), model })
}

/// Publishes the files of rank 0. The other ranks see them after a fence.
pub(crate) fn publish(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<()> {
    if bootstrap.rank() > 0 {
        return Ok(());
    }
    let mut w = Writer::new();
    if cache(settings, DEVICES[0]).is_some() {
        for device in DEVICES {
            let rules = rules(settings, device).last(MOST_BYTES);
            let models = Models::load(settings, device).map_or_else(Vec::new, |models| models.to_bytes());
            w = w.bytes(device.as_bytes()).bytes(rules.as_bytes()).bytes(&models);
        }
    }
    bootstrap.put(KEY, &w.done())
}

/// The rules and the model of a device as they were published; `None` if rank 0 keeps no files.
fn published(bytes: &[u8], device: &str) -> Option<Option<(Rules, Option<Models>)>> {
    let mut r = Reader::new(bytes);
    let mut found = None;
    while !r.is_empty() {
        let (name, rules, models) = (r.bytes()?, std::str::from_utf8(r.bytes()?).ok()?, r.bytes()?);
        let models = if models.is_empty() { None } else { Some(Models::from_bytes(models)?) };
        let rules = rules.parse().ok()?;
        if name == device.as_bytes() {
            found = Some((rules, models));
        }
    }
    Some(found)
}

/// Gives all ranks what rank 0 has published, and measures a model if there is none. Collective.
///
/// # Errors
/// `PeerLost`, `Launcher`, `Protocol`.
pub(crate) fn begin(job: &Job) -> Result<()> {
    let bytes = job.bootstrap.borrow_mut().get(KEY)?;
    let device = job.device().capabilities().name;
    let found = published(&bytes, device).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, "select collectives").peer(0).cause("malformed rules or models from rank 0")
    })?;
    let Some((rules, models)) = found else { return Ok(()) };
    if job.size() == 1 {
        return Ok(());
    }
    let models = match models {
        Some(models) => Some(models),
        None => {
            let models = measured(job)?;
            if job.rank() == 0
                && let Some(Err(e)) = models.as_ref().map(|models| models.store(job.settings()))
            {
                tracing::warn!("{e}");
            }
            models
        }
    };
    job.calls().tuning.keeps.set(job.rank() == 0);
    job.calls().tuning.begin(rules, models.map(|models| models.p_log_p().clone()));
    Ok(())
}

/// Measures a model, unless ranks share the processors of rank 0's node.
pub(crate) fn measured(job: &Job) -> Result<Option<Models>> {
    let world = job.world()?;
    if coll::broadcast(&world, 0, &[u8::from(job.is_on_oversubscribed_node())])? != [0] {
        return Ok(None);
    }
    match Models::measure(job, world.members(), LIMIT) {
        Ok(models) => Ok(Some(models)),
        Err(e) if e.kind() == ErrorKind::Timeout => {
            tracing::info!("no model of the network: {e}");
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Adds the rules that teams of rank 0 have measured to the file.
pub(crate) fn keep(job: &Job) {
    let new = job.measured_rules();
    if !job.calls().tuning.keeps.get() || new.is_empty() {
        return;
    }
    let device = job.device().capabilities().name;
    let mut all = rules(job.settings(), device);
    new.iter().cloned().for_each(|rule| all.set(rule));
    let Some(cache) = cache(job.settings(), device) else { return };
    let lines = all.last(MOST_RULES * 64);
    if let Err(e) = cache.replace().and_then(|replacement| replacement.finish(&lines)) {
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
        let bytes = Writer::new().bytes(b"shm").bytes(rules.as_bytes()).bytes(&[]).done();
        let (read, models) = published(&bytes, "shm").unwrap().unwrap();
        assert!(read.to_string().starts_with("allreduce 4 1024-2047 one-node ring") && models.is_none());
        assert!(published(&bytes, "verbs").unwrap().is_none() && published(&[], "shm").unwrap().is_none());
        assert!((1..bytes.len()).all(|end| published(&bytes[..end], "shm").is_none()));
        let wrong = Writer::new().bytes(b"shm").bytes(b"allreduce 4").bytes(&[]).done();
        assert!(published(&wrong, "shm").is_none());
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
    }
}
