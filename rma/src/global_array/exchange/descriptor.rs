//! The descriptors of two tasks' arrays, which the tasks exchange to create a link.

use bytemuck::Pod;
use farside_core::wire::{Reader, Writer};
use farside_core::{Error, ErrorKind, Result, Team, am};

use super::OP;
use super::schedule::{Request, Task};
use crate::elements::WindowElement;
use crate::global_array::GlobalArray;
use crate::global_array::agreement::agree;
use crate::global_array::distribution::{Distribution, Format};
use crate::messages::Messages;

/// Bytes of the header of a message.
const HEADER: usize = 8;

/// First word of a descriptor, which distinguishes it from the messages of the program.
const DESCRIPTOR_MAGIC: u64 = u64::from_le_bytes(*b"\xffarrays\xff");

/// A hash of the element type `T`, which the tasks compare.
fn code_of<T: Pod>() -> u64 {
    WindowElement::of::<T>("a global array").code()
}

/// Properties of a task that it sends to the other task; afterwards all ranks of both tasks know them.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskProperties {
    /// The strategy that the program requests.
    pub(super) request: Request,
    /// Whether ranks of the first rank's node share processors.
    pub(super) share_processors: bool,
    /// Payload bytes of a packet.
    pub(super) packet: usize,
}

/// Bytes of [`TaskProperties`] in a descriptor.
const PROPERTIES_BYTES: usize = 32;

impl TaskProperties {
    fn write(self, w: Writer) -> Writer {
        w.u64(DESCRIPTOR_MAGIC).u64(self.request.code()).u64(u64::from(self.share_processors)).u64(self.packet as u64)
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        r.u64().filter(|mark| *mark == DESCRIPTOR_MAGIC)?;
        let request = Request::of_code(r.u64()?);
        Some(Self { request, share_processors: r.u64()? == 1, packet: usize::try_from(r.u64()?).ok()? })
    }
}

/// The other task, its properties, and those of this task's first rank.
pub(super) struct TaskDescription<const D: usize> {
    pub(super) peer_task: Task<D>,
    pub(super) properties: [TaskProperties; 2],
}

impl<T: Pod, const D: usize> GlobalArray<T, D> {
    /// Checks that none of these job ranks is in this task: a rank in both tasks would have to make both calls at once.
    pub(super) fn check_disjoint(&self, others: &[u32]) -> Result<()> {
        match others.iter().find(|rank| self.team().members().contains(rank)) {
            None => Ok(()),
            Some(rank) => Err(Error::new(ErrorKind::BadArgument, OP)
                .peer(*rank)
                .cause("the rank is in both tasks")
                .remedy("use `redistribute_into` for two arrays of one team")),
        }
    }

    /// Exchanges descriptors between the first ranks; returns the description of the other task.
    pub(super) fn exchange_descriptors(
        &self,
        both: &Team,
        other: usize,
        tag: i32,
        request: Request,
    ) -> Result<TaskDescription<D>> {
        let place = |member: &u32| both.members().iter().position(|rank| rank == member);
        let own = TaskProperties {
            request,
            share_processors: both.job().is_on_oversubscribed_node(),
            packet: am::room(both.job(), HEADER),
        };
        let exchanged = (|| {
            self.check_disjoint(&[both.job_rank(other)?])?;
            let ranks: Option<Vec<usize>> = self.team().members().iter().map(place).collect();
            let ranks = ranks.ok_or_else(|| {
                if self.team().rank() == 0 {
                    // The other task waits for this task's descriptor, and its own must not match a receive of a later
                    // link, so both messages are still exchanged. Their errors are ignored, since an error is returned
                    // anyway.
                    let _ = both.send(&[0u8; 0], other, tag);
                    let _ = both.recv_vec::<u8>(other, tag);
                }
                Error::new(ErrorKind::NoSuchRank, OP)
                    .cause("a rank of the task is not in the team that joins both tasks")
            })?;
            if self.team().rank() > 0 {
                return Ok(Vec::new());
            }
            let d = &self.distribution;
            let numbers = d.shape.iter().chain(&d.grid).map(|n| *n as u64).chain(d.formats.iter().map(|f| f.code()));
            let all = numbers.chain([code_of::<T>()]).chain(ranks.iter().map(|rank| *rank as u64));
            let mine = all.fold(own.write(Writer::new()).u64(D as u64), Writer::u64).done();
            let sent = both.send_nbi(mine, other, tag)?;
            let (theirs, _) = both.recv_vec::<u8>(other, tag)?;
            sent.wait()?;
            Ok([own.write(Writer::new()).done(), theirs].concat())
        })();
        // This also reports an error of the first rank to all ranks of the task.
        let all = agree(self.team(), OP, exchanged.is_ok(), exchanged.as_deref().unwrap_or_default());
        exchanged?;
        self.described(&all?[0])
    }

    /// Decodes the properties of this task and the descriptor of the other task.
    fn described(&self, bytes: &[u8]) -> Result<TaskDescription<D>> {
        let mut reader = Reader::new(bytes);
        let mismatch = |cause: String| {
            Error::new(ErrorKind::Mismatch, OP)
                .rank(self.team().job().rank())
                .cause(cause)
                .remedy("link arrays of the same shape and element type")
        };
        let malformed = || {
            Error::new(ErrorKind::Aborted, OP)
                .cause("creating the link failed at the other task")
                .remedy("see the error of the peer rank")
        };
        let own = TaskProperties::read(&mut reader).ok_or_else(malformed)?;
        let theirs = match TaskProperties::read(&mut reader) {
            Some(properties) => properties,
            None if bytes.len() == PROPERTIES_BYTES => return Err(malformed()),
            None => {
                return Err(mismatch("a message with the link's tag is not the other task's descriptor".into())
                    .remedy("use a tag that no other message between the tasks' first ranks uses"));
            }
        };
        if let (Request::Once { sends: own }, Request::Once { sends: theirs }) = (own.request, theirs.request)
            && own == theirs
        {
            return Err(mismatch(format!("both tasks {} the array", if own { "send" } else { "receive" }))
                .remedy("call `send_to` in one of the tasks, and `recv_from` in the other one"));
        }
        let mut number = || reader.u64().and_then(|n| usize::try_from(n).ok());
        let dimensions = number().ok_or_else(malformed)?;
        if dimensions != D {
            return Err(mismatch(format!("the other task's array has {dimensions} dimensions, this one {D}")));
        }
        let mut numbers = || -> Option<[usize; D]> {
            let mut all = [0; D];
            all.iter_mut().try_for_each(|n| number().map(|read| *n = read))?;
            Some(all)
        };
        let (shape, grid) = numbers().zip(numbers()).ok_or_else(malformed)?;
        let formats = numbers().ok_or_else(malformed)?.map(|code| Format::of_code(code as u64));
        let element = reader.u64().ok_or_else(malformed)?;
        if shape != self.distribution.shape {
            return Err(mismatch(format!(
                "the other task's array has shape {shape:?}, this one {:?}",
                self.distribution.shape
            )));
        }
        if element != code_of::<T>() {
            return Err(mismatch(format!(
                "the other task's array has elements other than `{}`",
                std::any::type_name::<T>()
            )));
        }
        let ranks: Vec<usize> = std::iter::from_fn(|| reader.u64()).map(|rank| rank as usize).collect();
        let distribution = Distribution::new(shape, formats, grid, ranks.len(), size_of::<T>())?;
        Ok(TaskDescription { peer_task: Task { ranks, distribution }, properties: [own, theirs] })
    }
}
