//! Cut-offs of messages between ranks of one node, fitted by a short measurement at the first start on a machine and
//! kept in a file.
//!
//! Whether packets or a read of the sender's memory are faster at a length depends on the processor, its caches and the
//! kernel. So the lowest two ranks of a node measure both over the device of the job, at the first start on a machine;
//! later starts read the file. The lowest rank of the node publishes what it has in its cache before the ranks
//! connect, so that all ranks of the node make the same decision without a message: they take its values, or wait for
//! those that it measures. Nothing here fails a job: without a file that can be written, in a wait that lasts, or where
//! ranks outnumber processors the device's values stay in force. Settings outrank all of them.

mod measure;

pub(crate) use measure::crossing;

use std::str::Split;

use crate::bootstrap::Bootstrap;
use crate::cache::{CacheFile, Format};
use crate::device::MessageCutOffs;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::settings::Settings;
use crate::wire::{Reader, Writer};

/// A fitted cut-off: the length from which the second of two ways to send a message is faster.
struct Quantity {
    /// The name, as in `FARSIDE_TRANSFER`.
    name: &'static str,
    field: fn(&mut MessageCutOffs) -> &mut usize,
    /// The cut-offs that make messages of any length go each way.
    ways: [MessageCutOffs; 2],
    /// Whether the messages use the same memory again and again, which peers then map if the system permits.
    reused: bool,
}

/// The lower bound of all values, and the shortest measured length. The upper bound is the device's
/// [`most_eager`](MessageCutOffs::most_eager).
const LEAST: usize = 8 << 10;

/// The file of fitted values.
const FILE: Format = Format { name: "cut-offs", line: "farside cut-offs 3" };

const EAGER: MessageCutOffs = MessageCutOffs { eager: usize::MAX, ..MessageCutOffs::UNMEASURED };
const READ: MessageCutOffs = MessageCutOffs { read_intra: 0, ..MessageCutOffs::UNMEASURED };

/// All quantities. A new one is a row here, with the fields of [`MessageCutOffs`] that its two ways need.
const QUANTITIES: [Quantity; 2] = [
    Quantity { name: "eager", field: |c| &mut c.eager, ways: [EAGER, READ], reused: false },
    Quantity { name: "read-intra", field: |c| &mut c.read_intra, ways: [EAGER, READ], reused: true },
];

/// Values of all [`QUANTITIES`], each within its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fitted {
    /// The [`most_eager`](MessageCutOffs::most_eager) of the device on which they were measured.
    most: usize,
    values: [usize; QUANTITIES.len()],
}

impl Fitted {
    /// `None` if a value is out of its bounds.
    fn new(most: usize, values: [usize; QUANTITIES.len()]) -> Option<Self> {
        values.iter().all(|value| (LEAST..=most).contains(value)).then_some(Self { most, values })
    }

    fn write(&self, w: Writer) -> Writer {
        self.values.iter().fold(w.u64(self.most as u64), |w, value| w.u64(*value as u64))
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let mut number = || usize::try_from(r.u64()?).ok();
        let most = number()?;
        let mut values = [0; QUANTITIES.len()];
        for value in &mut values {
            *value = number()?;
        }
        Self::new(most, values)
    }

    /// The lines of a file.
    fn lines(&self) -> String {
        let rows = QUANTITIES.iter().zip(self.values).map(|(quantity, value)| format!("{} {value}\n", quantity.name));
        format!("most {}\n{}", self.most, rows.collect::<String>())
    }

    fn parse(lines: &mut Split<'_, char>) -> Option<Self> {
        let mut number = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<usize>().ok();
        let most = number("most")?;
        let mut values = [0; QUANTITIES.len()];
        for (value, quantity) in values.iter_mut().zip(&QUANTITIES) {
            *value = number(quantity.name)?;
        }
        Self::new(most, values)
    }

    /// The cut-offs of a device, with these values, as far as the device's bound allows them.
    fn applied(&self, mut to: MessageCutOffs) -> MessageCutOffs {
        for (quantity, value) in QUANTITIES.iter().zip(self.values) {
            *(quantity.field)(&mut to) = value.min(to.most_eager);
        }
        // A message that is not sent eagerly is read: in packets it could be longer than the device's buffers.
        MessageCutOffs { read_intra: to.read_intra.min(to.eager), ..to }
    }
}

/// The values that the lowest rank of a node has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// It neither uses nor measures values.
    Off,
    Nothing,
    Values(Fitted),
}

impl Known {
    fn write(self) -> Vec<u8> {
        match self {
            Self::Off => vec![],
            Self::Nothing => vec![0],
            Self::Values(fitted) => fitted.write(Writer::new().u8(1)).done(),
        }
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        match r.u8() {
            None => Some(Self::Off),
            Some(0) => Some(Self::Nothing),
            Some(_) => Fitted::read(&mut r).map(Self::Values),
        }
    }
}

/// Values that were measured, and with how many messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    fitted: Fitted,
    messages: u32,
}

impl Measured {
    fn write(&self) -> Vec<u8> {
        self.fitted.write(Writer::new().u32(self.messages)).done()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut r = Reader::new(bytes);
        let messages = r.u32()?;
        Fitted::read(&mut r).map(|fitted| Self { fitted, messages })
    }
}

/// A rank's part of the calibration, from before it connects.
#[derive(Debug)]
pub(crate) struct Calibration(Option<CacheFile>);

impl Calibration {
    /// Reads the cache, and publishes what is in it. The other ranks see it after a fence.
    pub(crate) fn publish(bootstrap: &mut dyn Bootstrap, settings: &Settings) -> Result<Self> {
        let cache = cache(settings).map(|cache| cache.reports(bootstrap.rank() == 0));
        let known =
            cache.as_ref().map_or(Known::Off, |cache| cache.read(Fitted::parse).map_or(Known::Nothing, Known::Values));
        bootstrap.put(&key(bootstrap.rank()), &known.write())?;
        Ok(Self(cache))
    }

    /// Gives all ranks of a node the same cut-offs. Collective; sends messages only if they are to be measured.
    ///
    /// # Errors
    /// `PeerLost`, `Launcher`, `Protocol`.
    pub(crate) fn agree(self, job: &Job) -> Result<()> {
        let capabilities = job.device().capabilities();
        let [leader, partner, ..] = capabilities.node[..] else { return Ok(()) };
        let most = capabilities.messages.most_eager;
        if most < LEAST {
            return Ok(());
        }
        let [first, second] = [known(job, leader)?, known(job, partner)?];
        let found = match first {
            Known::Values(fitted) if fitted.most >= most => Some(Measured { fitted, messages: 0 }),
            _ if first == Known::Off || second == Known::Off || job.is_on_oversubscribed_node() => None,
            _ => {
                let found = measure::together(job, &capabilities.node, most, measure::LIMIT, self.0)?;
                // Ranks that have not left yet poll, before their program can register handlers. All ranks are here: the
                // device of a job of several nodes names no messages to measure.
                job.bootstrap.borrow_mut().fence()?;
                found
            }
        };
        if let Some(Measured { fitted, messages }) = found {
            job.set_message_cut_offs(fitted.applied(capabilities.messages).adjusted(&job.settings().transfer));
            tracing::info!("cut-offs {}, measured by {messages} messages of this job", named(&fitted));
        }
        Ok(())
    }
}

/// The file of this machine.
fn cache(settings: &Settings) -> Option<CacheFile> {
    // The cost of a read depends on how ranks may access each other's memory.
    CacheFile::new(settings, &FILE, &format!("{:?}", settings.shm_user_memory))
}

fn key(rank: u32) -> String {
    format!("calibration.{rank}")
}

fn known(job: &Engine, rank: u32) -> Result<Known> {
    let bytes = job.bootstrap.borrow_mut().get(&key(rank))?;
    Known::read(&bytes).ok_or_else(|| {
        Error::new(ErrorKind::Protocol, "calibrate").peer(rank).cause("malformed cut-offs from another rank")
    })
}

fn named(fitted: &Fitted) -> String {
    let pairs = QUANTITIES.iter().zip(fitted.values).map(|(quantity, value)| format!("{}:{value}", quantity.name));
    pairs.collect::<Vec<_>>().join(",")
}

/// The values that jobs on this machine use, for `farside info`: in the form of `FARSIDE_TRANSFER`, or why there are
/// none.
#[must_use]
pub fn report(settings: &Settings) -> String {
    let Some(cache) = cache(settings) else {
        return "off: the defaults of the device".into();
    };
    let file = cache.file().display();
    match cache.read(Fitted::parse) {
        Some(fitted) => format!("{} (measured; from {file})", named(&fitted)),
        None => format!("the defaults of the device, until a job of two ranks has measured ({file})"),
    }
}

#[cfg(test)]
mod tests;
