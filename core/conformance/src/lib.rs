//! Checks that a device keeps the contracts of `farside_core::device`. Farside's own devices are tested with them; they
//! are published for authors of other devices.
//!
//! ```
//! use farside_conformance::{Setup, Subject};
//! use farside_core::Job;
//! use farside_core::device::loopback::{Hub, Loopback};
//! use farside_core::settings::Settings;
//!
//! let settings = Settings::from_lookup(|_| None)?;
//! let subject = Subject {
//!     name: "loopback",
//!     setup: Setup { quick: true, ..Setup::default() },
//!     launch: &|ranks, body| {
//!         let hub = Hub::new(ranks);
//!         Job::threads_on(ranks as usize, &settings, |rank| Ok(Box::new(Loopback::new(&hub, rank))), body).map(drop)
//!     },
//! };
//! let report = farside_conformance::run(&subject, |check| check.name.starts_with("fetch_add"));
//! assert!(report.failed.is_empty(), "{report}");
//! # Ok::<(), farside_core::Error>(())
//! ```
//!
//! A check that needs a feature that the device does not declare (mapped memory, lists, a fixed room for packets) is
//! skipped, and the report says why.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use farside_core::{Error, Job, Result};

/// Defines a check of a device, which a number of ranks runs.
macro_rules! check {
    (fn $name:ident($job:ident, $setup:ident) over $ranks:literal $body:block) => {
        pub(crate) fn $name() -> $crate::Check {
            #[allow(unused_variables)]
            fn body($job: &farside_core::Job, $setup: &$crate::Setup) -> farside_core::Result<()> $body
            $crate::Check { name: stringify!($name), ranks: $ranks, body }
        }
    };
}

mod accumulate;
mod atomics;
mod errors;
mod lists;
mod memory;
mod notify;
mod packets;
mod passive;
mod regions;
mod release;
mod transfer;
mod world;

/// A check: a function for each of its ranks, which panics or returns an error if the device is wrong.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// The property that it shows.
    pub name: &'static str,
    /// The number of ranks that it needs.
    pub ranks: u32,
    /// The function that each rank runs.
    pub body: Body,
}

/// The function that each rank of a check runs.
pub type Body = fn(&Job, &Setup) -> Result<()>;

/// Options of the checks of a device, and its properties beyond its capabilities.
#[derive(Default)]
pub struct Setup {
    /// Whether regions are memory of the caller; if not, the device allocates them.
    pub user_memory: bool,
    /// Whether access to memory that was released may reach pages that its owner no longer has, instead of an error.
    pub private_pages: bool,
    /// Whether checks do fewer rounds, for slow machines.
    pub quick: bool,
    /// Number of packets of a length that a device accepts for a rank that receives none, before it answers `Busy`;
    /// `None` if the number depends on more than the length.
    pub packet_room: Option<PacketRoom>,
    /// The reason why the last check was skipped.
    pub skipped: Mutex<Option<&'static str>>,
}

/// The range of the number of packets of a length that fit.
pub type PacketRoom = Box<dyn Fn(usize) -> RangeInclusive<usize> + Send + Sync>;

impl Setup {
    /// `all`, or `few` in a quick run.
    fn rounds(&self, all: u64, few: u64) -> u64 {
        if self.quick { few } else { all }
    }

    /// Ends a check that needs a feature that the device does not declare.
    fn skip(&self, reason: &'static str) -> Result<()> {
        *self.skipped.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        Ok(())
    }
}

/// A device to be checked.
#[allow(missing_debug_implementations)]
pub struct Subject<'a> {
    /// Name of the device in the report.
    pub name: &'a str,
    /// Options of its checks.
    pub setup: Setup,
    /// Runs a function as that number of ranks, each with the device in its job, for example by `Job::threads_on`.
    pub launch: &'a Launch<'a>,
}

/// Runs the function as that number of ranks.
pub type Launch<'a> = dyn Fn(u32, &(dyn Fn(&Job) -> Result<()> + Sync)) -> Result<()> + 'a;

/// The outcome of checks.
#[derive(Debug, Default)]
pub struct Report {
    /// The name of the subject.
    pub subject: String,
    /// Checks that passed.
    pub passed: Vec<&'static str>,
    /// Checks that were skipped, and why.
    pub skipped: Vec<(&'static str, &'static str)>,
    /// Checks that failed, and how: the error names the rank, and holds the text of a panic.
    pub failed: Vec<(&'static str, Error)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.skipped.iter().try_for_each(|(check, why)| writeln!(f, "skipped: {check}: {why}"))?;
        self.failed.iter().try_for_each(|(check, e)| writeln!(f, "failed: {check}: {e}"))?;
        let (passed, skipped, failed) = (self.passed.len(), self.skipped.len(), self.failed.len());
        write!(f, "{}: {passed} passed, {skipped} skipped, {failed} failed", self.subject)
    }
}

/// Runs the [`checks`] for which `wanted` returns true, one after the other.
pub fn run(subject: &Subject<'_>, wanted: impl Fn(&Check) -> bool) -> Report {
    let mut report = Report { subject: subject.name.to_owned(), ..Report::default() };
    for check in checks().into_iter().filter(wanted) {
        let (body, setup) = (check.body, &subject.setup);
        let result = (subject.launch)(check.ranks, &|job| body(job, setup));
        let skipped = subject.setup.skipped.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (result, skipped) {
            (Err(e), _) => report.failed.push((check.name, e)),
            (Ok(()), Some(why)) => report.skipped.push((check.name, why)),
            (Ok(()), None) => report.passed.push(check.name),
        }
    }
    report
}

macro_rules! checks {
    ($d:tt $($module:ident: $($name:ident)*;)*) => {
        /// All checks.
        #[must_use]
        pub fn checks() -> Vec<Check> {
            vec![$($($module::$name()),*),*]
        }

        /// Calls a macro with the names of all [`checks`], for a test of each.
        #[macro_export]
        macro_rules! for_each_check {
            ($d then:ident) => {
                $d then! { $($($name)*)* }
            };
        }
    };
}

checks! {
    $
    accumulate:
        accumulate_adds_exactly_under_contention
        accumulate_gives_former_values
        accumulate_misaligned_unknown_or_unsupported_is_refused;
    atomics:
        fetch_add_is_exact_under_contention
        compare_swap_is_exact_under_contention
        fetch_add_is_coherent_with_the_processor_of_the_target
        fetch_add_wraps_and_compare_swap_keeps_other_values
        atomics_misaligned_or_out_of_range_are_refused;
    errors:
        out_of_range_is_refused
        unknown_region_is_a_bad_key
        region_of_another_peer_is_refused
        peers_packets_and_lengths_that_do_not_exist_are_refused
        notify_at_a_bad_place_is_an_error
        cancel_leaves_local_memory_alone;
    lists:
        lists_match_in_order_or_are_refused
        scatter_that_stays_open_does_not_hold_up_the_end;
    notify:
        notify_is_seen_after_the_data
        notify_waits_for_every_byte_of_every_earlier_block
        signal_and_atomic_are_seen_after_earlier_writes
        signal_wakes_a_parked_rank_every_time
        signal_through_post_sets_the_cell;
    packets:
        packets_of_every_length_come_whole_and_in_order
        long_packets_are_sent_from_memory_until_they_complete
        packets_to_one_from_many_keep_the_order_of_each
        full_queue_is_busy_and_loses_nothing;
    passive:
        passive_memory_of_a_computing_rank_is_served;
    memory:
        allocated_memory_is_zeroed_and_aligned;
    release:
        released_memory_is_the_owners_again
        released_memory_is_not_reached_by_a_transfer_that_had_begun
        released_own_memory_is_a_bad_key_to_its_owner
        a_new_region_after_a_released_one_is_not_reached_by_the_old_key;
    transfer:
        write_read_every_length_to_200
        write_read_of_words_at_every_alignment
        write_read_of_long_messages
        write_read_with_block_lists
        write_read_with_lists_on_both_sides
        write_read_own_memory
        write_read_by_all_to_all
        writes_to_the_same_bytes_keep_their_order;
}
