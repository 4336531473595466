//! Failed bodies that other ranks have reported ([`bodies`](super::bodies)).

use std::cell::{Ref, RefCell};
use std::rc::Rc;

use farside_core::wire::Reader;

/// First header byte of a failure notification. Headers of records begin with lower values.
pub(super) const FAILED: u8 = 0x80;
/// Maximum number of failures that a window keeps; later ones replace the oldest, which belong to past epochs.
const MAX_KEPT: usize = 64;

/// A failure that another rank has reported.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) source: u32,
    pub(super) code: u8,
    /// The unique number of the window.
    pub(super) window: u64,
    pub(super) number: u64,
    /// Number of fences that the rank had completed.
    pub(super) fences: u64,
    pub(super) text: String,
}

/// The failures that other ranks have reported.
#[derive(Clone, Debug, Default)]
pub(super) struct Failures(Rc<RefCell<Vec<Failure>>>);

impl Failures {
    /// The reported failures, the oldest first.
    pub(super) fn reported(&self) -> Ref<'_, Vec<Failure>> {
        self.0.borrow()
    }

    /// Handles a message of rank `source` with this header; returns whether it is a failure notification.
    pub(super) fn take(&self, source: u32, header: &[u8]) -> bool {
        let mut r = Reader::new(header);
        let Some(code) = r.u8().filter(|code| *code >= FAILED) else { return false };
        if let (Some(window), Some(number), Some(fences)) = (r.u64(), r.u64(), r.u64()) {
            let mut all = self.0.borrow_mut();
            if all.len() == MAX_KEPT {
                all.remove(0);
            }
            all.push(Failure {
                source,
                code,
                window,
                number,
                fences,
                text: String::from_utf8_lossy(r.rest()).into_owned(),
            });
        }
        true
    }
}
