#![allow(unsafe_code)]
//! Creates the record of a call, and detects the errors that are visible at this rank alone.

use std::ffi::c_int;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use crate::arguments::{Arguments, info};
use crate::compare::kind;
use crate::graph::{cart_dimensions, edges};
use crate::level;
use crate::local::reduction_of_characters;
use crate::names::HANDLES;
use crate::pmpi::{self, IN_PLACE, PREDEFINED, PROC_NULL, ROOT, TYPE_NULL, class};
use crate::record::{Block, Blocks, Record, SharedValue};
use crate::shadow::Shadow;
use crate::table::{Data, Row};
use crate::types;

/// An error that is visible at this rank alone: its class and text.
pub type Fault = Option<(i64, String)>;

/// The record of a call.
pub fn record(call: usize, row: &Row, args: &Arguments<'_>, shadow: &Shadow) -> Record {
    let mut record = Record { call: call as i64, ..Record::default() };
    for spec in row.same {
        record.same.extend(same(spec, args, shadow));
    }
    let mut call = Describe { args, shadow, record };
    call.root_in_range();
    call.data(row.data);
    call.record
}

/// A value that must be the same on all ranks; `None` if it is not compared at this level.
fn same(spec: &str, args: &Arguments<'_>, shadow: &Shadow) -> Option<SharedValue> {
    let (name, length) = spec.split_once('*').map_or((spec, None), |(name, length)| (name, Some(length)));
    let (values, shown) = match name {
        "op" => {
            let op = args.handle("op")?;
            let known = HANDLES.iter().find(|(value, _)| op < PREDEFINED && *value == op);
            (
                vec![known.map_or(-1, |_| op as i64)],
                known.map_or("of the program".to_owned(), |(_, name)| (*name).into()),
            )
        }
        "in_place" if shadow.inter => return None,
        "in_place" => {
            let text = if args.in_place() { "MPI_IN_PLACE" } else { "buffer" };
            return Some(SharedValue { name: name.into(), values: vec![args.in_place().into()], text: text.into() });
        }
        "info" if level::get() < 3 => return None,
        "info" => {
            let keys = info(args.handle("info")?);
            let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(&keys);
            let keys: Vec<_> = keys.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            (vec![hash as i64], format!("{{{}}}", keys.join(", ")))
        }
        "assert" if level::get() < 4 => return None,
        "assert" => {
            let given = [(2048, "MPI_MODE_NOPRECEDE"), (16384, "MPI_MODE_NOSUCCEED")];
            let given = given.into_iter().filter(|(bit, _)| args.int("assert").is_some_and(|all| all & bit != 0));
            let (bits, names): (Vec<i64>, Vec<&str>) = given.unzip();
            (bits, if names.is_empty() { "0".into() } else { names.join(" | ") })
        }
        _ => match length {
            None => {
                let value = args.int(name)?;
                let text = match (name, value) {
                    ("root", ROOT) => "MPI_ROOT".to_owned(),
                    ("root", PROC_NULL) => "MPI_PROC_NULL".to_owned(),
                    _ => value.to_string(),
                };
                (vec![if matches!(name, "high" | "reorder") { i64::from(value != 0) } else { value }], text)
            }
            Some(length) => {
                let length = match (length, args.int(length)) {
                    ("nedges", _) => edges(args)?,
                    (_, Some(length)) => length,
                    _ => cart_dimensions(args.comm()?),
                };
                let mut values = args.list(name, usize::try_from(length).ok()?);
                if matches!(name, "periods" | "remain_dims") {
                    values.iter_mut().for_each(|value| *value = i64::from(*value != 0));
                }
                let text = braces(&values);
                (values, text)
            }
        },
    };
    Some(SharedValue { name: name.into(), values, text: format!("{name} {shown}") })
}

/// Values in braces, at most 16 of them.
pub fn braces(values: &[i64]) -> String {
    let some: Vec<_> = values.iter().take(16).map(i64::to_string).collect();
    format!("{{{}{}}}", some.join(","), if values.len() > 16 { ",.." } else { "" })
}

/// Creates the record of a call.
pub struct Describe<'a> {
    pub args: &'a Arguments<'a>,
    pub shadow: &'a Shadow,
    pub record: Record,
}

impl Describe<'_> {
    pub fn fault(&mut self, class: i64, text: String) {
        self.record.fault.get_or_insert((class, text));
    }

    fn root_in_range(&mut self) {
        let Some(root) = self.args.int("root") else { return };
        let ranks = self.shadow.peers() as i64;
        let special = self.shadow.inter && matches!(root, ROOT | PROC_NULL);
        if !special && !(0..ranks).contains(&root) {
            self.fault(class::ROOT, format!("root {root} is not a rank from 0 to {}", ranks - 1));
        }
    }

    /// The root, whether this rank is the root, and whether it participates in the call.
    fn root(&self) -> (i64, bool, bool) {
        let root = self.args.int("root").unwrap_or(0);
        if self.shadow.inter {
            return (root, root == ROOT, root >= 0);
        }
        (root, root == self.shadow.rank(), true)
    }

    fn data(&mut self, data: Data) {
        let (root, is_root, takes_part) = self.root();
        let (send_in_place, recv_in_place) =
            (self.args.address("sendbuf") == Some(IN_PLACE), self.args.address("recvbuf") == Some(IN_PLACE));
        let me = self.shadow.rank();
        match data {
            Data::Bcast if is_root => self.record.sends = self.blocks("", false),
            Data::Bcast if takes_part => self.record.recvs = self.one(root, "", true),
            Data::Gather => {
                self.only_root("sendbuf", send_in_place, is_root);
                if takes_part && !send_in_place {
                    self.record.sends = self.one(root, "send", false);
                }
                if is_root {
                    self.record.recvs = self.blocks("recv", true);
                }
            }
            Data::Scatter => {
                self.only_root("recvbuf", recv_in_place, is_root);
                if takes_part && !recv_in_place {
                    self.record.recvs = self.one(root, "recv", true);
                }
                if is_root {
                    self.record.sends = self.blocks("send", false);
                }
            }
            Data::Allgather => {
                self.record.recvs = self.blocks("recv", true);
                self.record.sends = if send_in_place {
                    self.record.recvs.of(me).0.first().map_or(Blocks::None, |block| Blocks::All(*block))
                } else {
                    self.blocks("send", false)
                };
            }
            Data::Alltoall => {
                self.record.recvs = self.blocks("recv", true);
                self.record.sends = if send_in_place { self.record.recvs.clone() } else { self.blocks("send", false) };
            }
            Data::Reduce => {
                if self.args.int("root").is_some() {
                    self.only_root("sendbuf", send_in_place, is_root);
                }
                if takes_part || is_root {
                    let (count, handle) = (self.args.int("count").unwrap_or(0), self.args.handle("datatype"));
                    let block = self.block(count, handle.unwrap_or(TYPE_NULL), "count", "datatype");
                    self.operator_is_defined();
                    self.record.same.push(SharedValue {
                        name: "datasize".into(),
                        values: vec![block.size],
                        text: format!("datasize {}", block.size),
                    });
                    self.same_signature(&block);
                }
            }
            Data::ReduceScatter => self.reduce_scatter(),
            Data::NeighborAllgather | Data::NeighborAlltoall => self.neighbours(),
            Data::Group | Data::GroupAlone => {
                let group = self.args.handle("group").unwrap_or(pmpi::GROUP_NULL);
                match (self.args.comm(), group) {
                    (Some(comm), group) if group != pmpi::GROUP_NULL => self.group(comm, group),
                    _ => self.fault(class::GROUP, "group is MPI_GROUP_NULL".into()),
                }
            }
            Data::Edges => self.edges(),
            Data::Graph => self.graph(),
            Data::Window => {
                let size = self.args.int("size").unwrap_or(-1);
                let unit = self.args.int("disp_unit").unwrap_or(1);
                if unit <= 0 {
                    self.fault(class::DISP, format!("disp_unit={unit} <= 0"));
                }
                self.record.note = vec![size, unit];
                self.asserted_by_hint("same_size", "size", size);
                self.asserted_by_hint("same_disp_unit", "disp_unit", unit);
            }
            _ => {}
        }
        if let Some(color) = self.args.int("color")
            && color < 0
            && color != i64::from(pmpi::UNDEFINED)
        {
            self.fault(class::ARG, format!("color={color} < 0"));
        }
        if let (Some(ndims), Some(_)) = (self.args.int("ndims"), self.args.int("reorder")) {
            self.grid(ndims);
        }
    }

    /// A value of a window that must be the same on all ranks if the program asserts this by a hint.
    fn asserted_by_hint(&mut self, hint: &str, name: &str, value: i64) {
        let hints = self.args.handle("info").map(info).unwrap_or_default();
        if hints.iter().any(|(key, given)| key == hint && given == "true") {
            let text = format!("{name} {value}");
            self.record.same.push(SharedValue { name: hint.into(), values: vec![value], text });
        }
    }

    fn only_root(&mut self, buffer: &str, in_place: bool, is_root: bool) {
        if in_place && !is_root {
            self.fault(class::BUFFER, format!("{buffer} is MPI_IN_PLACE, which only the root may pass"));
        }
    }

    fn operator_is_defined(&mut self) {
        if let (None, Some(op), Some(datatype)) =
            (&self.record.fault, self.args.handle("op"), self.args.handle("datatype"))
        {
            self.record.fault = reduction_of_characters(op, datatype);
        }
    }

    fn same_signature(&mut self, block: &Block) {
        self.record.same.push(SharedValue {
            name: "signature".into(),
            values: vec![block.hash, block.elements],
            text: format!("datatype {}", kind(block)),
        });
    }

    /// One block; empty, with a fault, if its count or type is wrong.
    fn block(&mut self, count: i64, handle: usize, count_name: &str, type_name: &str) -> Block {
        if let Some(fault) = amount(count, handle, count_name, type_name) {
            self.record.fault.get_or_insert(fault);
            return Block::default();
        }
        types::block(count, handle)
    }

    /// Displacement in bytes, count, type and block of one direction: for each of the first `n` ranks, and true; or for
    /// one block that all ranks share, and false.
    pub fn parts(&mut self, side: &str, n: usize) -> (Vec<(i64, i64, usize, Block)>, bool) {
        if n == 0 {
            return (Vec::new(), true);
        }
        let args = self.args;
        let (count, counts) = (format!("{side}count"), format!("{side}counts"));
        let (handle, handles) = (format!("{side}type"), format!("{side}types"));
        let datatype = args.handle(&handle).or_else(|| args.handle("datatype")).unwrap_or(TYPE_NULL);
        if !args.is_list(&counts) {
            let name = if args.int(&count).is_some() { &*count } else { "count" };
            let count = args.int(name).unwrap_or(0);
            let block = self.block(count, datatype, name, if side.is_empty() { "datatype" } else { &handle });
            return (vec![(0, count, datatype, block)], false);
        }
        let displacements = if args.is_list("displs") { "displs".to_owned() } else { format!("{}displs", &side[..1]) };
        let (all, types, displacements) = (args.list(&counts, n), args.list(&handles, n), args.list(&displacements, n));
        let each = all.iter().enumerate().map(|(i, count)| {
            let handle = types.get(i).map_or(datatype, |handle| *handle as usize);
            let block = self.block(*count, handle, &format!("{counts}[{i}]"), "datatype");
            // In calls with a type for each block, displacements are in bytes.
            let faulty = self.record.fault.is_some();
            let step = if types.is_empty() && !faulty { types::extent(handle).1 } else { 1 };
            (displacements.get(i).copied().unwrap_or(0).wrapping_mul(step), *count, handle, block)
        });
        (each.collect(), true)
    }

    fn blocks(&mut self, side: &str, receives: bool) -> Blocks {
        let ranks = self.shadow.peers();
        let (parts, each) = self.parts(side, ranks);
        self.memory(side, receives, &parts, each);
        match (&parts[..], each) {
            ([(_, _, _, block)], false) => Blocks::All(*block),
            _ => Blocks::Each(parts.into_iter().map(|part| part.3).collect()),
        }
    }

    fn one(&mut self, rank: i64, side: &str, receives: bool) -> Blocks {
        let (parts, each) = self.parts(side, 1);
        self.memory(side, receives, &parts, each);
        Blocks::List(parts.first().map(|part| (rank, part.3)).into_iter().collect())
    }

    /// Checks addresses: data must not be at NULL, and received blocks must not overlap.
    pub fn memory(&mut self, side: &str, receives: bool, parts: &[(i64, i64, usize, Block)], each: bool) {
        if self.record.fault.is_some() {
            return;
        }
        let buffer = if side.is_empty() { "buffer".to_owned() } else { format!("{side}buf") };
        let Some(base) = self.args.address(&buffer).filter(|base| *base != IN_PLACE) else { return };
        let parts: Vec<_> = parts.iter().map(|(at, count, handle, _)| (*at, *count, *handle)).collect();
        if let Some(i) = parts
            .iter()
            .position(|(at, count, handle)| types::touches_null((base as i64).wrapping_add(*at), *count, *handle))
        {
            let part = if each { format!(" (part {i})") } else { String::new() };
            return self.fault(class::BUFFER, format!("{buffer}{part} has the address NULL"));
        }
        if !receives {
            return;
        }
        if let Some((a, b)) = types::overlap(&parts) {
            let text = if a == b {
                format!("{buffer}: the datatype has overlapping elements in a receive buffer")
            } else {
                format!("{buffer}: the parts from {} and {} overlap", a.min(b), a.max(b))
            };
            self.fault(class::BUFFER, text);
        }
    }

    fn reduce_scatter(&mut self) {
        let ranks = self.shadow.size();
        let handle = self.args.handle("datatype").unwrap_or(TYPE_NULL);
        let counts = if self.args.is_list("recvcounts") {
            self.args.list("recvcounts", ranks)
        } else {
            vec![self.args.int("recvcount").unwrap_or(0); ranks]
        };
        let blocks: Vec<_> = (counts.iter().enumerate())
            .map(|(i, count)| self.block(*count, handle, &format!("recvcounts[{i}]"), "datatype"))
            .collect();
        self.operator_is_defined();
        let sizes: Vec<_> = blocks.iter().map(|block| block.size).collect();
        self.record.same.push(SharedValue {
            name: "scattersize".into(),
            text: format!("scattersize {}", braces(&sizes)),
            values: sizes,
        });
        if self.record.fault.is_none() {
            let total = counts.iter().fold(0i64, |sum, count| sum.saturating_add(*count));
            if !self.shadow.inter {
                self.same_signature(&types::block(total, handle));
            }
        }
    }

    /// The ranks of a group, all of which are in the communicator.
    fn group(&mut self, comm: usize, group: usize) {
        let (mut whole, mut size) = (0usize, 0);
        // SAFETY: the functions write a handle and a number.
        unsafe {
            pmpi::MPI_Comm_group(comm, &raw mut whole);
            pmpi::MPI_Group_size(group, &raw mut size);
        }
        let ranks: Vec<c_int> = (0..size).collect();
        let mut out = vec![0; ranks.len()];
        // SAFETY: both lists have `size` numbers; the group was made above.
        unsafe {
            pmpi::MPI_Group_translate_ranks(group, size, ranks.as_ptr(), whole, out.as_mut_ptr());
            pmpi::MPI_Group_free(&raw mut whole);
        }
        if let Some(rank) = out.iter().position(|rank| *rank == pmpi::UNDEFINED) {
            self.fault(class::GROUP, format!("rank {rank} of the group is not in the communicator"));
        }
        let values: Vec<_> = out.into_iter().map(i64::from).collect();
        self.record.same.push(SharedValue { name: "group".into(), text: format!("group {}", braces(&values)), values });
    }
}

/// Checks a count and a type.
pub fn amount(count: i64, handle: usize, count_name: &str, type_name: &str) -> Fault {
    if count < 0 {
        return Some((class::COUNT, format!("{count_name}={count} < 0")));
    }
    if handle == TYPE_NULL {
        return Some((class::TYPE, format!("{type_name} is MPI_DATATYPE_NULL")));
    }
    (!types::is_committed(handle)).then(|| (class::TYPE, format!("{type_name} is not committed")))
}
