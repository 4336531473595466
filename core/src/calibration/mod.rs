//! Cut-offs of messages between ranks of one node, fitted by a short measurement at the first start on a machine and
//! cached in a file.
//!
//! Whether packets or a read of the sender's memory are faster at a length depends on the processor, its caches and the
//! kernel. So the lowest two ranks of a node measure both over the device of the job, at the first start on a machine;
//! later starts read the file. The lowest rank of the node publishes its cached values before the ranks connect, so
//! that all ranks of the node make the same decision without a message: they use these values, or wait for those that
//! it measures. A failure here never fails a job: if the file cannot be written, if the measurement takes too long, or
//! if ranks outnumber processors, the device's values stay in force. Settings take precedence over all of them.

mod measure;

pub(crate) use measure::crossover_length;

use crate::cache::{CacheFile, Published};
use crate::device::MessageCutOffs;
use crate::error::Result;
use crate::job::Job;
use crate::settings::Settings;

/// A fitted cut-off: the minimum length at which the second of two ways to send a message is faster.
struct Quantity {
    /// The name, as in `FARSIDE_TRANSFER`.
    name: &'static str,
    field: fn(&mut MessageCutOffs) -> &mut usize,
    /// The cut-offs that make messages of all lengths use the first way, or the second.
    ways: [MessageCutOffs; 2],
    /// Whether the messages reuse their memory, which peers then map if the system permits.
    reused: bool,
}

/// The lower bound of all cut-offs, and the shortest measured length. The upper bound is the device's
/// [`most_eager`](MessageCutOffs::most_eager).
const MIN_CUT_OFF: usize = 8 << 10;

/// The name of the fitted values in the table of measured quantities.
pub(crate) const NAME: &str = "cut-offs";

const EAGER: MessageCutOffs = MessageCutOffs { eager_intra: usize::MAX, ..MessageCutOffs::UNMEASURED };
const READ: MessageCutOffs = MessageCutOffs { read_intra: 0, ..MessageCutOffs::UNMEASURED };

/// All quantities. To add one, add a row here, and to [`MessageCutOffs`] the fields that its two ways need.
const QUANTITIES: [Quantity; 2] = [
    Quantity { name: "eager", field: |c| &mut c.eager_intra, ways: [EAGER, READ], reused: false },
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
    /// Returns `None` if a value is out of its bounds.
    fn new(most: usize, values: [usize; QUANTITIES.len()]) -> Option<Self> {
        values.iter().all(|value| (MIN_CUT_OFF..=most).contains(value)).then_some(Self { most, values })
    }

    /// The values as text, one per line.
    fn lines(&self) -> String {
        let rows = QUANTITIES.iter().zip(self.values).map(|(quantity, value)| format!("{} {value}\n", quantity.name));
        format!("most {}\n{}", self.most, rows.collect::<String>())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        let mut number = |name| lines.next()?.strip_prefix(name)?.strip_prefix(' ')?.parse::<usize>().ok();
        let most = number("most")?;
        let mut values = [0; QUANTITIES.len()];
        for (value, quantity) in values.iter_mut().zip(&QUANTITIES) {
            *value = number(quantity.name)?;
        }
        lines.next().map_or_else(|| Self::new(most, values), |_| None)
    }

    /// The cut-offs of a device with these values, as far as the device's bound allows them.
    fn applied(&self, mut to: MessageCutOffs) -> MessageCutOffs {
        for (quantity, value) in QUANTITIES.iter().zip(self.values) {
            *(quantity.field)(&mut to) = value.min(to.most_eager);
        }
        // A message that is not sent eagerly is read: in packets it could be longer than the device's buffers.
        MessageCutOffs { read_intra: to.read_intra.min(to.eager_intra), ..to }
    }
}

/// Measured values, and the number of messages used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    fitted: Fitted,
    messages: u32,
}

impl Measured {
    fn text(&self) -> String {
        format!("{} messages\n{}", self.messages, self.fitted.lines())
    }

    fn parse(text: &str) -> Option<Self> {
        let (messages, lines) = text.split_once(" messages\n")?;
        Some(Self { fitted: Fitted::parse(lines)?, messages: messages.parse().ok()? })
    }
}

/// Gives all ranks of a node the same cut-offs: the values that its lowest rank has published, or new ones, which that
/// rank stores in its file. Collective; sends messages only if the cut-offs are to be measured.
///
/// # Errors
/// `PeerLost`, `Launcher`, `Protocol`.
pub(crate) fn agree(job: &Job, cache: Option<CacheFile>) -> Result<()> {
    let capabilities = job.device().capabilities();
    let [leader, partner, ..] = capabilities.node[..] else { return Ok(()) };
    let most = capabilities.messages.most_eager;
    if most < MIN_CUT_OFF {
        return Ok(());
    }
    let published = |rank| Published::get(rank, &mut **job.bootstrap.borrow_mut());
    let (first, second) = (published(leader)?, published(partner)?);
    let known = first.as_ref().and_then(|first| first.table.get(NAME, Fitted::parse));
    let found = match known {
        Some(fitted) if fitted.most >= most => Some(Measured { fitted, messages: 0 }),
        _ if first.is_none() || second.is_none() || job.is_on_oversubscribed_node() => None,
        // All ranks of the job take part in the fence below, and those of other nodes may know their values.
        _ if capabilities.node.len() < job.size() => None,
        _ => {
            let found = measure::together(job, &capabilities.node, most, measure::LIMIT, cache)?;
            // No rank leaves this call while another still polls in it: that one has not registered the handlers of its
            // program, so it could not receive messages of the program.
            job.bootstrap.borrow_mut().fence()?;
            found
        }
    };
    if let Some(Measured { fitted, messages }) = found {
        job.message_cut_offs.set(fitted.applied(capabilities.messages).adjusted(&job.settings().transfer));
        tracing::info!("cut-offs {}, measured by {messages} messages of this job", named(&fitted));
    }
    Ok(())
}

fn named(fitted: &Fitted) -> String {
    let pairs = QUANTITIES.iter().zip(fitted.values).map(|(quantity, value)| format!("{}:{value}", quantity.name));
    pairs.collect::<Vec<_>>().join(",")
}

/// The values that jobs on this machine use, for `farside info`: in the form of `FARSIDE_TRANSFER`, or the reason why
/// no values are used.
#[must_use]
pub fn report(settings: &Settings) -> String {
    let Some(cache) = CacheFile::new(settings) else {
        return "off: the defaults of the device".into();
    };
    let file = cache.file().display();
    match cache.read().and_then(|table| table.get(NAME, Fitted::parse)) {
        Some(fitted) => format!("{} (measured; from {file})", named(&fitted)),
        None => format!("the defaults of the device, until a job of two ranks has measured ({file})"),
    }
}

#[cfg(test)]
mod tests;
