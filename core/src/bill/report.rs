//! The bill of all ranks, which rank 0 prints at the end of the job, as a table and as JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::trace::ns;
use super::{Account, Bill, Entry, page};
use crate::error::{Error, ErrorKind, Result};
use crate::stats::Kind;

/// Operation name in errors.
const GATHER: &str = "gather the bill";

/// One rank's record of one account.
#[derive(Debug, Serialize, Deserialize)]
struct Part {
    /// Context and number of the window; `None` for waits that belong to no account.
    account: Option<(u32, u32)>,
    name: Option<String>,
    members: Vec<u32>,
    calls: BTreeMap<String, u64>,
    /// Count and bytes by kind of operation.
    kinds: BTreeMap<String, (u64, u64)>,
    sums: Vec<Sum>,
    /// For each wait: index in `operations`, call, awaited rank, nanoseconds.
    waits: Vec<(u32, u64, u32, u64)>,
    operations: Vec<String>,
}

/// Time that an operation waited for a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sum {
    operation: String,
    from: Option<u32>,
    waits: u64,
    ns: u64,
}

/// The bill of one window or team.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    pub(super) account: String,
    pub(super) name: Option<String>,
    /// Ranks of the job.
    pub(super) ranks: Vec<u32>,
    pub(super) calls: BTreeMap<String, u64>,
    pub(super) operations: BTreeMap<String, Amount>,
    pub(super) waits: Vec<Charge>,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct Amount {
    pub(super) count: u64,
    pub(super) bytes: u64,
}

/// Time that one rank waited for another.
#[derive(Debug, Serialize)]
pub(super) struct Charge {
    pub(super) rank: u32,
    /// The awaited rank; `None` if it is not known.
    pub(super) waited_for: Option<u32>,
    pub(super) operation: String,
    pub(super) seconds: f64,
}

/// The complete bill.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(super) ranks: u32,
    pub(super) seconds: f64,
    pub(super) bill: Vec<Line>,
}

impl Bill {
    /// This rank's part, in the format that [`report`](Self::report) reads.
    ///
    /// # Errors
    /// `Protocol`.
    pub(crate) fn part(&self) -> Result<Vec<u8>> {
        let parts: Vec<Part> = self.entries.borrow().iter().map(|(account, entry)| entry.part(*account)).collect();
        serde_json::to_vec(&parts).map_err(|e| Error::new(ErrorKind::Protocol, GATHER).cause(e.to_string()))
    }

    /// The bill of all ranks of the job at time `now`, from each rank's part.
    ///
    /// # Errors
    /// `Protocol` if a rank keeps no bill.
    pub(crate) fn report(&self, parts: &[Vec<u8>], now: Instant) -> Result<Report> {
        let read = |(rank, bytes): (u32, &Vec<u8>)| {
            serde_json::from_slice::<Vec<Part>>(bytes)
                .map_err(|e| Error::new(ErrorKind::Protocol, GATHER).peer(rank).cause(e.to_string()))
        };
        let all = (0..).zip(parts).map(read).collect::<Result<Vec<_>>>()?;
        let seconds = now.duration_since(self.since).as_secs_f64();
        Ok(Report { ranks: all.len() as u32, seconds, bill: lines(&all) })
    }
}

impl Entry {
    fn part(&self, account: Option<Account>) -> Part {
        let counted = self.direct.snapshot().merged(&self.posted.snapshot());
        let kinds = Kind::ALL.iter().filter(|kind| counted.count(**kind) > 0);
        let mut operations: Vec<String> = Vec::new();
        let mut number = |name: &str| {
            let known = operations.iter().position(|n| n == name);
            known.unwrap_or_else(|| {
                operations.push(name.to_owned());
                operations.len() - 1
            }) as u32
        };
        let waits = self.waits.borrow().iter().map(|w| (number(w.operation), w.call, w.from, ns(w.time))).collect();
        let sum = |((operation, from), sum): (&(&'static str, Option<u32>), &super::Sum)| Sum {
            operation: (*operation).to_owned(),
            from: *from,
            waits: sum.waits,
            ns: ns(sum.time),
        };
        Part {
            account: account.map(|a| (a.context, a.window)),
            name: self.name.borrow().clone(),
            members: self.members.borrow().to_vec(),
            calls: self.calls.borrow().iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect(),
            kinds: kinds.map(|k| (k.name().to_owned(), (counted.count(*k), counted.bytes(*k)))).collect(),
            sums: self.sums.borrow().iter().map(sum).collect(),
            waits,
            operations,
        }
    }
}

impl Part {
    /// The individually recorded waits: operation, call, awaited rank, nanoseconds.
    fn kept(&self) -> impl Iterator<Item = (&str, u64, u32, u64)> {
        let named = |&(operation, call, from, ns): &(u32, u64, u32, u64)| {
            Some((self.operations.get(operation as usize)?.as_str(), call, from, ns))
        };
        self.waits.iter().filter_map(named)
    }
}

/// The accounts of all ranks, merged.
fn lines(all: &[Vec<Part>]) -> Vec<Line> {
    let accounts: BTreeSet<Option<(u32, u32)>> = all.iter().flatten().map(|part| part.account).collect();
    let of = |account| {
        let parts: Vec<(u32, &Part)> = (0..)
            .zip(all)
            .filter_map(|(rank, parts)| Some((rank, parts.iter().find(|part| part.account == account)?)))
            .collect();
        line(account, &parts)
    };
    // Waits that belong to no window and no team come last.
    let (first, rest): (Vec<_>, Vec<_>) = accounts.into_iter().partition(Option::is_some);
    first.into_iter().chain(rest).map(of).filter(|line| !line.is_empty()).collect()
}

fn line(account: Option<(u32, u32)>, parts: &[(u32, &Part)]) -> Line {
    let mut calls: BTreeMap<String, u64> = BTreeMap::new();
    let mut operations: BTreeMap<String, Amount> = BTreeMap::new();
    let mut ranks: BTreeSet<u32> = BTreeSet::new();
    for (rank, part) in parts {
        ranks.insert(*rank);
        ranks.extend(&part.members);
        part.calls.iter().for_each(|(name, n)| *calls.entry(name.clone()).or_default() += n);
        for (name, (count, bytes)) in &part.kinds {
            let amount = operations.entry(name.clone()).or_default();
            amount.count += count;
            amount.bytes += bytes;
        }
    }
    Line {
        account: account.map_or_else(
            || "no window, no team".to_owned(),
            |(context, window)| Account { context, window }.to_string(),
        ),
        name: parts.iter().find_map(|(_, part)| part.name.clone()),
        ranks: ranks.into_iter().collect(),
        calls,
        operations,
        waits: charges(parts),
    }
}

/// The longest wait of each rank in each call: the awaited rank and the nanoseconds.
type Longest<'a> = BTreeMap<(u32, &'a str, u64), (u32, u64)>;

/// Charges every wait to a rank. If the awaited rank itself waited in the same call, the charge goes to the rank that
/// it waited for.
fn charges(parts: &[(u32, &Part)]) -> Vec<Charge> {
    let mut longest = Longest::new();
    let waits = || parts.iter().flat_map(|(rank, part)| part.kept().map(|kept| (*rank, kept)));
    for (rank, (operation, call, from, ns)) in waits() {
        let known = longest.entry((rank, operation, call)).or_insert((from, ns));
        if ns > known.1 {
            *known = (from, ns);
        }
    }
    let mut sums: BTreeMap<(u32, String, Option<u32>), u64> = BTreeMap::new();
    for (rank, part) in parts {
        for sum in &part.sums {
            *sums.entry((*rank, sum.operation.clone(), sum.from)).or_default() += sum.ns;
        }
    }
    for (rank, (operation, call, from, ns)) in waits() {
        let late = late(&longest, rank, operation, call, from, ns);
        if late != from {
            let direct = sums.entry((rank, operation.to_owned(), Some(from))).or_default();
            *direct = direct.saturating_sub(ns);
            *sums.entry((rank, operation.to_owned(), Some(late))).or_default() += ns;
        }
    }
    let charge = |((rank, operation, waited_for), ns): ((u32, String, Option<u32>), u64)| {
        (ns > 0).then(|| Charge { rank, waited_for, operation, seconds: ns as f64 / 1e9 })
    };
    sums.into_iter().filter_map(charge).collect()
}

/// The rank that delayed `from`, and so `rank`, by `ns`: `from` itself, unless `from` waited for at least half of that
/// time too.
fn late(longest: &Longest<'_>, rank: u32, operation: &str, call: u64, from: u32, ns: u64) -> u32 {
    let (mut seen, mut late) = (BTreeSet::from([rank]), from);
    while seen.insert(late)
        && let Some((next, waited)) = longest.get(&(late, operation, call))
        && *waited >= ns / 2
        && !seen.contains(next)
    {
        late = *next;
    }
    late
}

impl Line {
    fn is_empty(&self) -> bool {
        self.calls.is_empty() && self.operations.is_empty() && self.waits.is_empty()
    }
}

/// Width of the table's bars, and the minimum share of the time for which the table shows a wait.
const WIDTH: f64 = 40.0;
const MIN_SHARE: f64 = 0.005;

impl Report {
    /// The bill as a table.
    pub(crate) fn text(&self) -> String {
        let mut out = format!("farside: the bill of {} ranks, {:.3} s\n", self.ranks, self.seconds);
        for line in &self.bill {
            line.write(&mut out, self.seconds);
        }
        out
    }

    /// The bill as the contents of a file with this name: a page if it ends in `.html`, otherwise JSON.
    pub(crate) fn file(&self, name: &str) -> String {
        if name.ends_with(".html") { page::html(self) } else { serde_json::to_string_pretty(self).unwrap_or_default() }
    }
}

impl Line {
    fn write(&self, out: &mut String, seconds: f64) {
        let charges: Vec<&Charge> = self.waits.iter().filter(|charge| charge.seconds >= seconds * MIN_SHARE).collect();
        if self.calls.is_empty() && self.operations.is_empty() && charges.is_empty() {
            return;
        }
        let name = self.name.as_ref().map_or(String::new(), |name| format!(" {name:?}"));
        let _ = writeln!(out, "{}{name}, {} ranks", self.account, self.ranks.len());
        let calls: Vec<String> = self.calls.iter().map(|(name, n)| format!("{n} {name}")).collect();
        if !calls.is_empty() {
            let _ = writeln!(out, "  calls     {}", calls.join(", "));
        }
        let amount = |(kind, a): (&String, &Amount)| format!("{} {kind} of {} bytes", a.count, a.bytes);
        let operations: Vec<String> = self.operations.iter().map(amount).collect();
        if !operations.is_empty() {
            let _ = writeln!(out, "  messages  {}", operations.join(", "));
        }
        for charge in charges {
            let share = (charge.seconds / seconds.max(1e-9)).min(1.0);
            let bar = "#".repeat((share * WIDTH).round() as usize);
            let from = charge.waited_for.map_or("another".to_owned(), |rank| rank.to_string());
            let Charge { rank, operation, seconds, .. } = charge;
            let _ = writeln!(
                out,
                "  {rank} waited for {from:7} {seconds:10.6} s  {:5.1} %  {operation:12} {bar}",
                100.0 * share
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(waits: &[(u64, u32, u64)]) -> Part {
        let sum =
            |(_, from, ns): &(u64, u32, u64)| Sum { operation: "fence".into(), from: Some(*from), waits: 1, ns: *ns };
        Part {
            account: Some((0, 1)),
            name: None,
            members: vec![0, 1, 2, 3],
            calls: BTreeMap::new(),
            kinds: BTreeMap::new(),
            sums: waits.iter().map(sum).collect(),
            waits: waits.iter().map(|(call, from, ns)| (0, *call, *from, *ns)).collect(),
            operations: vec!["fence".into()],
        }
    }

    /// Waits in a dissemination in which rank 2 is late: rank 1 waits for rank 3, which waits for rank 2.
    #[test]
    fn wait_for_a_rank_that_waits_is_charged_to_the_one_that_is_late() {
        let parts = [part(&[(1, 2, 1000)]), part(&[(1, 3, 990)]), part(&[]), part(&[(1, 2, 1010)])];
        let parts: Vec<(u32, &Part)> = (0..).zip(&parts).collect();
        let charges = charges(&parts);
        let found: Vec<(u32, Option<u32>)> = charges.iter().map(|c| (c.rank, c.waited_for)).collect();
        assert_eq!(found, [(0, Some(2)), (1, Some(2)), (3, Some(2))]);
    }

    /// Ranks that wait for each other in different calls; and a cycle, which correct ranks do not report but a faulty
    /// peer may.
    #[test]
    fn wait_for_another_call_is_not_followed_and_a_cycle_ends() {
        let parts = [part(&[(1, 1, 1000)]), part(&[(2, 0, 1000)])];
        let parts: Vec<(u32, &Part)> = (0..).zip(&parts).collect();
        let found: Vec<_> = charges(&parts).iter().map(|c| (c.rank, c.waited_for)).collect();
        assert_eq!(found, [(0, Some(1)), (1, Some(0))]);
        let parts = [part(&[(1, 1, 1000)]), part(&[(1, 2, 1000)]), part(&[(1, 0, 1000)])];
        let parts: Vec<(u32, &Part)> = (0..).zip(&parts).collect();
        assert_eq!(charges(&parts).len(), 3);
    }
}
