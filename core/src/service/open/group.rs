//! The key-value exchange for a device that connects only some ranks of a job.

use crate::bootstrap::Bootstrap;
use crate::error::{Error, ErrorKind, Result};

/// Number of fences in which a device that connects only some ranks is opened; the other ranks enter them too.
const FENCES: usize = 4;

/// A group of ranks of a job, with its own keys. All ranks of the job enter its fences.
pub(crate) struct Group<'a> {
    inner: &'a mut dyn Bootstrap,
    /// The ranks, in ascending order.
    ranks: &'a [u32],
    /// This rank's number in the group.
    me: u32,
    prefix: String,
    fences: usize,
}

impl<'a> Group<'a> {
    /// The group of `ranks`, to which this rank belongs; `prefix` distinguishes its keys from others.
    pub(crate) fn new(inner: &'a mut dyn Bootstrap, ranks: &'a [u32], prefix: String) -> Self {
        let me = ranks.iter().position(|rank| *rank == inner.rank()).unwrap_or(0) as u32;
        Self { inner, ranks, me, prefix, fences: 0 }
    }

    /// Enters the remaining fences of [`FENCES`], which ranks outside the group enter too.
    pub(crate) fn end(mut self) -> Result<()> {
        while self.fences < FENCES {
            self.fence()?;
        }
        Ok(())
    }

    /// Enters the fences of a group to which this rank does not belong.
    pub(crate) fn pass(bootstrap: &mut dyn Bootstrap) -> Result<()> {
        (0..FENCES).try_for_each(|_| bootstrap.fence())
    }
}

impl Bootstrap for Group<'_> {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn rank(&self) -> u32 {
        self.me
    }

    fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    fn job_id(&self) -> &str {
        self.inner.job_id()
    }

    fn put(&mut self, key: &str, value: &[u8]) -> Result<()> {
        self.inner.put(&format!("{}{key}", self.prefix), value)
    }

    fn fence(&mut self) -> Result<()> {
        self.fences += 1;
        if self.fences > FENCES {
            let e = Error::new(ErrorKind::Unsupported, "open a device").rank(self.inner.rank());
            return Err(e.cause("the device needs more bootstrap fences than ranks without the device enter"));
        }
        self.inner.fence()
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        self.inner.get(&format!("{}{key}", self.prefix))
    }

    fn finalize(&mut self) -> Result<()> {
        Ok(())
    }

    fn abort(&mut self, code: i32, reason: &str) {
        self.inner.abort(code, reason);
    }
}
