//! The checks between ranks: a pure function of the records of all ranks, so all ranks get the same result and all call
//! the error handler.

use std::collections::BTreeMap;

use crate::names::{HANDLES, NAMES};
use crate::pmpi::{ROOT, class};
use crate::record::{Block, Record};
use crate::table::{CALLS, Data};

/// A rank of a communicator: its group (0 in an intracommunicator), and its rank in that group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRank {
    pub side: u8,
    pub rank: i64,
}

/// An error, and the rank that reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The rank that reports it, as an index into the records.
    pub reporter: usize,
    pub class: i64,
    pub text: String,
    /// The subject of the complaint: the name of a value, or "call", "size", "signature", "edge", "fault".
    pub about: String,
    /// The explanation of level 2.
    pub why: String,
}

/// The records of all ranks of one call.
pub struct CallRecords<'a> {
    pub places: &'a [GroupRank],
    pub records: &'a [Option<Record>],
    pub inter: bool,
}

impl CallRecords<'_> {
    fn ranks(&self) -> impl Iterator<Item = (usize, GroupRank, &Record)> {
        self.records.iter().enumerate().filter_map(|(at, record)| Some((at, self.places[at], record.as_ref()?)))
    }

    /// The name of a rank in the report of another rank.
    fn name(&self, of: GroupRank, to: GroupRank) -> String {
        if of.side == to.side { of.rank.to_string() } else { format!("{} of the other group", of.rank) }
    }

    /// Whether two ranks can exchange data in the call.
    fn joined(&self, a: GroupRank, b: GroupRank) -> bool {
        !self.inter || a.side != b.side
    }
}

/// The complaints of the first check that finds any, in the order of the ranks.
pub fn compare(all: &CallRecords<'_>) -> Vec<Complaint> {
    for check in [calls, faults, inter_sizes, values, groups, pairs] {
        let found = check(all);
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

fn data(record: &Record) -> Data {
    CALLS[NAMES[record.call as usize].1].data
}

fn calls(all: &CallRecords<'_>) -> Vec<Complaint> {
    let Some((_, first, reference)) = all.ranks().next() else { return Vec::new() };
    let mut by_call = BTreeMap::<&str, Vec<String>>::new();
    for (_, place, record) in all.ranks() {
        by_call.entry(NAMES[record.call as usize].0).or_default().push(all.name(place, first));
    }
    let who: Vec<_> = by_call.iter().map(|(call, ranks)| format!("{call} by {}", list(ranks))).collect();
    let why = format!(
        "All ranks of a communicator must make the same collective calls in the same order.\nHere they called: {}.",
        who.join("; ")
    );
    let others = all.ranks().filter(|(_, _, record)| record.call != reference.call);
    others
        .map(|(reporter, place, _)| Complaint {
            reporter,
            class: class::NOT_SAME,
            text: format!(
                "call inconsistent with call to {} by {}",
                NAMES[reference.call as usize].0,
                all.name(first, place)
            ),
            about: "call".into(),
            why: why.clone(),
        })
        .collect()
}

fn faults(all: &CallRecords<'_>) -> Vec<Complaint> {
    all.ranks()
        .filter_map(|(reporter, _, record)| {
            let (class, text) = record.fault.clone()?;
            Some(Complaint { reporter, class, text, about: "fault".into(), why: String::new() })
        })
        .collect()
}

/// Checks values that must be the same on all ranks or, where groups may differ, in each group.
fn values(all: &CallRecords<'_>) -> Vec<Complaint> {
    let Some((_, _, any)) = all.ranks().next() else { return Vec::new() };
    for name in any.same.iter().map(|same| same.name.as_str()).filter(|name| *name != "group") {
        let whole = matches!(name, "op" | "tag" | "signature");
        let mut found = Vec::new();
        for (reporter, place, record) in all.ranks() {
            let reference = all.ranks().find(|(_, other, _)| whole || other.side == place.side);
            let Some((_, first, reference)) = reference else { continue };
            let (Some(mine), Some(theirs)) = (record.value(name), reference.value(name)) else { continue };
            let good = if name == "root" && all.inter {
                root_of_inter(all, place)
            } else if name == "signature" && [mine, theirs].iter().any(|same| same.values.first() == Some(&-1)) {
                true
            } else {
                mine.values == theirs.values || (name == "split_type" && undefined(mine, theirs))
            };
            if !good {
                found.push(Complaint {
                    reporter,
                    class: if name == "signature" { class::TYPE } else { class::NOT_SAME },
                    text: format!("{} inconsistent with {} of {}", mine.text, theirs.text, all.name(first, place)),
                    about: name.into(),
                    why: spread(all, name),
                });
            }
        }
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// A rank that does not participate in a split passes `MPI_UNDEFINED` in place of the split type.
fn undefined(mine: &crate::record::SharedValue, theirs: &crate::record::SharedValue) -> bool {
    let none = i64::from(crate::pmpi::UNDEFINED);
    mine.values == [none] || theirs.values == [none]
}

/// In the root's group one rank passes `MPI_ROOT` and the others `MPI_PROC_NULL`; the other group passes the rank of
/// the root.
fn root_of_inter(all: &CallRecords<'_>, place: GroupRank) -> bool {
    let root = |record: &Record| record.value("root").and_then(|same| same.values.first().copied());
    let roots: Vec<_> = all.ranks().filter(|(_, _, record)| root(record) == Some(ROOT)).collect();
    let mine = all.ranks().find(|(_, other, _)| *other == place).and_then(|(_, _, record)| root(record));
    match roots[..] {
        [(_, it, _)] if it.side == place.side => mine == Some(if it == place { ROOT } else { crate::pmpi::PROC_NULL }),
        [(_, it, _)] => mine == Some(it.rank),
        // There is no root or more than one: every rank that could be the root reports it.
        _ => mine.is_some_and(|root| root >= 0),
    }
}

/// The rule for a value, and the ranks that passed each value.
fn spread(all: &CallRecords<'_>, name: &str) -> String {
    let mut by_value = BTreeMap::<&str, Vec<String>>::new();
    for (_, place, record) in all.ranks() {
        let side = if all.inter { format!(" of group {}", place.side) } else { String::new() };
        let text = record.value(name).map_or("none", |same| same.text.as_str());
        by_value.entry(text).or_default().push(format!("{}{side}", place.rank));
    }
    let who: Vec<_> = by_value.iter().map(|(text, ranks)| format!("{text} by {}", list(ranks))).collect();
    format!("{}\nHere: {}.", crate::explain::rule(name), who.join("; "))
}

fn list(ranks: &[String]) -> String {
    let some: Vec<_> = ranks.iter().take(8).cloned().collect();
    let more = ranks.len() - some.len();
    format!("{}{}", some.join(", "), if more > 0 { format!(" and {more} more") } else { String::new() })
}

/// All members of a group must pass that group; other ranks may pass another group.
fn groups(all: &CallRecords<'_>) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (reporter, place, record) in all.ranks() {
        let Some(mine) = record.value("group") else { continue };
        let differs = all.ranks().find(|(_, other, record)| {
            other.side == place.side
                && mine.values.contains(&other.rank)
                && record.value("group").is_some_and(|theirs| theirs.values != mine.values)
        });
        if let Some((_, other, theirs)) = differs {
            let theirs = theirs.value("group").map_or("", |same| same.text.as_str());
            found.push(Complaint {
                reporter,
                class: class::GROUP,
                text: format!("{} inconsistent with {theirs} of {}", mine.text, other.rank),
                about: "group".into(),
                why: spread(all, "group"),
            });
        }
    }
    found
}

/// Compares the data that each rank sends to each other rank with the data that the receiver expects.
fn pairs(all: &CallRecords<'_>) -> Vec<Complaint> {
    let mut found = Vec::new();
    for (from_at, from, sender) in all.ranks() {
        for (to_at, to, receiver) in all.ranks().filter(|(_, to, _)| all.joined(from, *to)) {
            let (sent, sent_one) = sender.sends.of(to.rank);
            let (expected, expected_one) = receiver.recvs.of(from.rank);
            let names = (all.name(to, from), all.name(from, to));
            let by_receiver = matches!(data(sender), Data::Bcast | Data::Scatter);
            let reporter = if by_receiver { to_at } else { from_at };
            let neighbours = matches!(data(sender), Data::NeighborAllgather | Data::NeighborAlltoall | Data::Edges);
            let sum = |blocks: &[Block]| blocks.iter().map(|block| block.size).fold(0i64, i64::wrapping_add);
            let (send_size, recv_size) = (sum(&sent), sum(&expected));
            let complaint = if neighbours && sent.len() != expected.len() {
                Some((
                    class::TOPOLOGY,
                    format!(
                        "edges to {}: {} in destinations != {} in sources({})",
                        names.0,
                        sent.len(),
                        expected.len(),
                        names.0
                    ),
                    "edge",
                ))
            } else if sent.is_empty() || expected.is_empty() {
                None
            } else if send_size != recv_size {
                let (sent_name, expected_name) =
                    if data(sender) == Data::Edges { ("weight", "weight") } else { ("sendsize", "recvsize") };
                let index = |one: bool, rank: i64| if one { format!("[{rank}]") } else { String::new() };
                let (sends, recvs) = (index(sent_one, to.rank), index(expected_one, from.rank));
                let text = if by_receiver {
                    let sign = if recv_size < send_size { '<' } else { '>' };
                    format!(
                        "{expected_name}{recvs}={recv_size} {sign} expected {sent_name}({}){sends}={send_size}",
                        names.1
                    )
                } else {
                    let sign = if send_size < recv_size { '<' } else { '>' };
                    format!(
                        "{sent_name}{sends}={send_size} {sign} expected {expected_name}({}){recvs}={recv_size}",
                        names.0
                    )
                };
                Some((class::TRUNCATE, text, if data(sender) == Data::Edges { "edge" } else { "size" }))
            } else {
                signatures(&sent, &expected).map(|(mine, theirs)| {
                    let text = if by_receiver {
                        format!("recvtype {} inconsistent with sendtype {} of {}", kind(&theirs), kind(&mine), names.1)
                    } else {
                        format!("sendtype {} inconsistent with recvtype {} of {}", kind(&mine), kind(&theirs), names.0)
                    };
                    (class::TYPE, text, "signature")
                })
            };
            if let Some((class, text, about)) = complaint {
                let (from, to) = (all.name(from, all.places[reporter]), all.name(to, all.places[reporter]));
                let why = match about {
                    "edge" => crate::explain::rule("edge").to_owned(),
                    _ => format!(
                        "{}\nHere rank {from} sends {send_size} bytes {}, and rank {to} expects {recv_size} bytes {}.",
                        crate::explain::rule(about),
                        sent.first().map_or_else(String::new, kind),
                        expected.first().map_or_else(String::new, kind),
                    ),
                };
                found.push(Complaint { reporter, class, text, about: about.into(), why });
            }
        }
    }
    found.sort_by_key(|complaint| complaint.reporter);
    found
}

/// The two blocks, if their signatures differ. Several blocks between one pair of ranks may be matched in any order,
/// and are not compared.
fn signatures(sent: &[Block], expected: &[Block]) -> Option<(Block, Block)> {
    match (sent, expected) {
        ([mine], [theirs]) if mine.hash != theirs.hash && mine.hash != -1 && theirs.hash != -1 => {
            Some((*mine, *theirs))
        }
        _ => None,
    }
}

/// A signature as text: "{4 MPI_INT}", or "{3 elements, MPI_INT first}".
pub fn kind(block: &Block) -> String {
    if block.elements == 0 {
        return "{nothing}".into();
    }
    let first = block.first.saturating_abs();
    let named = HANDLES.iter().find(|(value, _)| *value as i64 == first).map_or("a derived type", |(_, name)| name);
    match block.first {
        0.. => format!("{{{} {named}}}", block.elements),
        _ => format!("{{{} elements, {named} first}}", block.elements),
    }
}

/// In a reduce-scatter between two groups, each group must scatter as many bytes as the other one reduces.
fn inter_sizes(all: &CallRecords<'_>) -> Vec<Complaint> {
    let total = |side: u8| {
        let mut ranks = all.ranks().filter(|(_, place, _)| place.side == side);
        let (at, _, record) = ranks.next()?;
        let name = if data(record) == Data::ReduceScatter { "scattersize" } else { "datasize" };
        Some((
            at,
            name,
            record
                .value(name)
                .or(record.value("datasize"))?
                .values
                .iter()
                .fold(0i64, |sum, size| sum.wrapping_add(*size)),
        ))
    };
    let root = all.ranks().any(|(_, _, record)| record.value("root").is_some());
    let (true, Some(a), Some(b)) = (all.inter && !root, total(0), total(1)) else { return Vec::new() };
    if a.2 == b.2 {
        return Vec::new();
    }
    let complaint = |(reporter, name, mine): (usize, &str, i64), theirs: i64| Complaint {
        reporter,
        class: class::TRUNCATE,
        text: format!("{name}={mine} != reducesize={theirs}"),
        about: "inter".into(),
        why: format!(
            "{}\nHere the group of this rank scatters {mine} bytes, and the other one reduces {theirs} bytes.",
            crate::explain::rule("inter")
        ),
    };
    vec![complaint(a, b.2), complaint(b, a.2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Blocks, SharedValue};

    /// Records of an `MPI_Alltoallv` in which all agree.
    fn alltoallv(ranks: usize) -> (Vec<GroupRank>, Vec<Option<Record>>) {
        let call = NAMES.iter().position(|(name, ..)| *name == "MPI_Alltoallv").unwrap() as i64;
        let blocks = Blocks::Each(vec![Block { size: 8, hash: 5, elements: 1, first: 0x214 }; ranks]);
        let same = vec![SharedValue { name: "in_place".into(), values: vec![0], text: "buffer".into() }];
        let record = Record { call, same, sends: blocks.clone(), recvs: blocks, ..Record::default() };
        ((0..ranks as i64).map(|rank| GroupRank { side: 0, rank }).collect(), vec![Some(record); ranks])
    }

    fn reporters(places: &[GroupRank], records: &[Option<Record>]) -> Vec<usize> {
        let found = compare(&CallRecords { places, records, inter: false });
        found.into_iter().map(|complaint| complaint.reporter).collect()
    }

    #[test]
    fn an_error_of_one_rank_is_found_for_every_rank_and_size() {
        for ranks in 1..20 {
            let (places, records) = alltoallv(ranks);
            assert!(reporters(&places, &records).is_empty());
            for wrong in 0..ranks {
                let mut changed = records.clone();
                let Some(Blocks::Each(list)) = changed[wrong].as_mut().map(|record| &mut record.sends) else {
                    panic!()
                };
                list[ranks - 1].size = 9;
                assert_eq!(reporters(&places, &changed), [wrong]);
                changed = records.clone();
                changed[wrong].as_mut().unwrap().same[0].values = vec![1];
                // All other ranks are compared with rank 0.
                let others: Vec<_> = (1..ranks).collect();
                assert_eq!(reporters(&places, &changed), if wrong == 0 { others } else { vec![wrong] });
            }
        }
    }

    #[test]
    fn records_of_any_content_are_compared() {
        let (places, records) = alltoallv(3);
        let odd = Record {
            same: Vec::new(),
            sends: Blocks::List(vec![(i64::MIN, Block::default())]),
            ..records[0].clone().unwrap()
        };
        let empty = SharedValue { name: "in_place".into(), ..SharedValue::default() };
        for record in [odd.clone(), Record { same: vec![empty], recvs: Blocks::Each(Vec::new()), ..odd }] {
            for at in 0..3 {
                let mut changed = records.clone();
                changed[at] = Some(record.clone());
                let _ = reporters(&places, &changed);
            }
        }
    }
}
