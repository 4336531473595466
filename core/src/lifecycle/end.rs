//! The team of all ranks, and the orderly end of a rank.

use std::fs::File;
use std::io::{self, BufWriter};

use crate::bill::Bill;
use crate::bill::timeline::Timeline;
use crate::coll;
use crate::coll::team::Team;
use crate::device::{Leave, PeerCheck};
use crate::error::{Error, ErrorKind, Result};
use crate::job::Job;
use crate::settings::Settings;
use crate::tuning;

impl Job {
    /// The team of all ranks. The first call is collective.
    ///
    /// # Errors
    /// `PeerLost`, `SharedMemoryFull`.
    pub fn world(&self) -> Result<Team> {
        if let Some(world) = self.stored_world().borrow().as_ref().and_then(|world| world.downcast_ref::<Team>()) {
            return Ok(world.clone());
        }
        let world = Team::world(self)?;
        // The team also holds the job, so `finalize` drops the team at the end.
        *self.stored_world().borrow_mut() = Some(Box::new(world.clone()));
        Ok(world)
    }

    /// Ends this rank in order, after all other ranks have called this too. Collective. Windows must be freed before;
    /// afterwards every call that needs or names another rank fails with `Freed`, even if memory is mapped.
    ///
    /// # Errors
    /// `Timeout` if others do not call it within `FARSIDE_TIMEOUT_S`, if that is set; `PeerLost`, `Launcher`,
    /// `InCallback`.
    pub fn finalize(&self) -> Result<()> {
        self.outside("finalize")?;
        let met = self.retire(false);
        // The team holds the job; once it is dropped, the device is closed with the last user of the job.
        *self.stored_world().borrow_mut() = None;
        self.drop_unfinished();
        self.end();
        met
    }

    /// Waits until all ranks have called this, as [`finalize`](Self::finalize) does, after which this rank may end at
    /// any time; the job can still be used. A rank that `stays` continues as before, and calls this or
    /// [`leave`](Self::leave) again. Collective; ranks may pass different values of `stays`.
    ///
    /// # Errors
    /// Those of `finalize`.
    pub fn retire(&self, stays: bool) -> Result<()> {
        self.outside("finalize")?;
        if self.left.replace(true) {
            return Ok(());
        }
        // A bill that cannot be written must not prevent an orderly end.
        let (mut billed, mut traced) = (Ok(()), Ok(None));
        let mut barrier = || {
            self.flush()?;
            billed = self.report_bill();
            traced = self.gather_trace();
            let world = self.world()?;
            self.calls().set_end(!stays);
            world.end_barrier()
        };
        // The others may compute for any time before they reach this point.
        let met = if self.settings.timeout_s.is_some() { self.in_time(barrier) } else { barrier() };
        let met = met.and_then(|()| self.in_time(|| self.part(stays)));
        if met.is_err() {
            let _ = self.device.leave(Leave::Lost);
            return met;
        }
        // Writing the files takes long, so the other ranks do not wait for it.
        tuning::keep(self);
        let billed = billed.and(traced.and_then(|parts| parts.map_or(Ok(()), |parts| self.write_trace(&parts))));
        if stays {
            self.left.set(false);
            return billed;
        }
        self.bootstrap.borrow_mut().finalize().and(billed)
    }

    /// Ends this rank in order, without waiting for the others. It is for a rank that will not communicate with them
    /// again, as both sides have agreed in earlier calls. Operations that others still start to this rank fail. Does
    /// nothing after `finalize` or [`retire`](Self::retire).
    ///
    /// # Errors
    /// `Timeout` if queued messages cannot be sent within `FARSIDE_TIMEOUT_S`; `Launcher`.
    pub fn leave(&self) -> Result<()> {
        self.outside("leave")?;
        if self.left.replace(true) {
            return Ok(());
        }
        let device = self.device();
        let gone = self.in_time(|| {
            self.flush()?;
            self.wait("leave", || Ok(device.leave(Leave::Early)?.then_some(())))
        });
        // Ranks that will not communicate with this one again may have ended, and accept no messages.
        let gone = gone.or_else(|e| match e.kind() {
            ErrorKind::PeerLost => device.leave(Leave::Early).map(|_| ()),
            _ => Err(e),
        });
        gone.and(self.bootstrap.borrow_mut().finalize())
    }

    /// Runs `f` with a limit of `FARSIDE_TIMEOUT_S` for all its waits.
    fn in_time(&self, f: impl FnOnce() -> Result<()>) -> Result<()> {
        self.within(self.settings.timeout(), f)
    }

    /// Gathers the bill of all ranks, which rank 0 reports, if the settings request it.
    fn report_bill(&self) -> Result<()> {
        let (Some(to), Some(bill)) = (&self.settings().bill, self.bill()) else { return Ok(()) };
        let parts = coll::allgather(&self.world()?, &bill.part()?)?;
        if self.rank() != 0 {
            return Ok(());
        }
        let report = bill.report(&parts, self.device().now())?;
        eprint!("{}", report.text());
        if to == "1" {
            return Ok(());
        }
        std::fs::write(to, report.file(to)).map_err(|e| unwritten("write the bill", "FARSIDE_BILL", to, &e))
    }

    /// Gathers the trace of all ranks at rank 0, if the settings request it.
    fn gather_trace(&self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(trace) = self.bill().and_then(Bill::trace) else { return Ok(None) };
        let world = self.world()?;
        let parts = coll::gather(&world, 0, &trace.part(&|| coll::execute::barrier(&world))?)?;
        Ok((self.rank() == 0).then_some(parts))
    }

    /// Writes the trace of all ranks.
    fn write_trace(&self, parts: &[Vec<u8>]) -> Result<()> {
        let Some(to) = &self.settings().trace else { return Ok(()) };
        let timeline = Timeline::read(parts)?;
        let written = match to.ends_with(".html") {
            true => std::fs::write(to, timeline.page()),
            false => File::create(to).and_then(|file| timeline.write(&mut BufWriter::new(file))),
        };
        written.map_err(|e| unwritten("write the trace", "FARSIDE_TRACE", to, &e))
    }

    /// Waits until all queued messages have been sent.
    fn flush(&self) -> Result<()> {
        self.wait("finalize", || Ok(self.active_messages().is_quiet().then_some(())))
    }

    /// On a network, waits until all messages of this rank have arrived, and then for the other ranks, so that no rank
    /// ends that may still have to retransmit a lost packet. On shared memory a rank may have entered the barrier and
    /// failed in it: then it has not ended in order, and all ranks get its error.
    fn part(&self, stays: bool) -> Result<()> {
        let device = self.device();
        device.check_peers(PeerCheck::Alive)?;
        self.flush()?;
        if !stays {
            self.wait("finalize", || Ok(device.leave(Leave::InOrder)?.then_some(())))?;
        }
        if device.capabilities().mapped { Ok(()) } else { self.bootstrap.borrow_mut().fence() }
    }
}

/// Checks that rank 0 can write the files that the settings request, so that a job does not fail to do so at its end.
///
/// # Errors
/// `Setting` for the file that cannot be written.
pub(super) fn check_files(settings: &Settings) -> Result<()> {
    let files =
        [("FARSIDE_BILL", settings.bill.as_ref().filter(|to| *to != "1")), ("FARSIDE_TRACE", settings.trace.as_ref())];
    files.iter().filter_map(|(setting, to)| to.map(|to| (setting, to))).try_for_each(|(setting, to)| {
        let opened = File::options().append(true).create(true).open(to);
        opened.map(drop).map_err(|e| unwritten("start a rank", setting, to, &e).rank(0usize))
    })
}

/// The error for a file that rank 0 cannot write.
fn unwritten(operation: &'static str, setting: &str, to: &str, e: &io::Error) -> Error {
    let wrong = Error::new(ErrorKind::Setting, operation).cause(format!("{setting}={to}: {e}"));
    wrong.remedy("choose a file that rank 0 can write")
}
