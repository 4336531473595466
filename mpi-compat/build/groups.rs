//! Parameters that form one argument of an implementation: a buffer with its count and type, a rank with its tag and
//! communicator, elements at a target.

use crate::table::Parameter;

/// Chapters whose functions take such arguments.
const CHAPTERS: [&str; 6] = ["p2p", "collective", "rma", "pack", "op", "partitioned"];

/// A letter that encodes the type of a parameter: address, number, list of numbers, datatype, list of datatypes,
/// communicator, window.
fn letter(parameter: &Parameter) -> char {
    match (parameter.base.as_str(), parameter.stars, parameter.array) {
        ("void", 1, false) => 'p',
        ("int" | "MPI_Count" | "MPI_Aint", 0, _) => 'n',
        ("int" | "MPI_Count" | "MPI_Aint", 1, true) => 'l',
        ("MPI_Datatype", 0, _) => 't',
        ("MPI_Datatype", 1, true) => 'T',
        ("MPI_Comm", 0, _) => 'c',
        ("MPI_Win", 0, _) => 'w',
        _ => '.',
    }
}

/// The arguments for these parameters; `one` maps a parameter that is not part of a group to its argument.
pub(crate) fn arguments(chapter: &str, parameters: &[Parameter], one: impl Fn(usize) -> String) -> Vec<String> {
    if !CHAPTERS.contains(&chapter) {
        return (0..parameters.len()).map(one).collect();
    }
    let letters: String = parameters.iter().map(letter).collect();
    let name = |at: usize| parameters[at].name.as_str();
    let names = |list: &[usize]| {
        let names: Vec<String> = list.iter().map(|at| format!("\"{}\"", name(*at))).collect();
        format!("&[{}]", names.join(", "))
    };
    let buffer = |address: usize, n: usize, datatype: usize| {
        format!("Buffer::new({}, {}, {}, {})", name(address), one(n), name(datatype), names(&[address, n]))
    };
    let element = |address: usize, datatype: usize| {
        format!("Buffer::new({}, 1, {}, {})", name(address), name(datatype), names(&[address, datatype]))
    };
    let place = |rank: usize, n: String, datatype: usize| {
        format!("Place::new({}, {}, {n}, {}, win)", name(rank), name(rank + 1), name(datatype))
    };
    let is_peer = |at: usize| {
        letters[at..].starts_with("nn") && ["source", "dest"].contains(&name(at)) && name(at + 1).ends_with("tag")
    };
    let has_peer = (0..letters.len()).any(is_peer);
    let has_place = parameters.iter().any(|parameter| parameter.name == "target_rank");
    let (mut out, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        let rest = &letters[at..];
        let starts = |with: &str| rest.starts_with(with);
        at += if starts("pnt") {
            // (buf, count, datatype)
            out.push(buffer(at, at + 1, at + 2));
            3
        } else if starts("pnnt") {
            // (buf, partitions, count, datatype)
            out.extend([buffer(at, at + 2, at + 3), one(at + 1)]);
            4
        } else if starts("ppnt") {
            // (sendbuf, recvbuf, count, datatype)
            out.extend([buffer(at, at + 2, at + 3), buffer(at + 1, at + 2, at + 3)]);
            4
        } else if starts("pplt") {
            // (sendbuf, recvbuf, recvcounts, datatype)
            out.extend([at, at + 1].map(|p| format!("Address::new({}, {})", name(p), names(&[p, at + 2]))));
            out.extend([one(at + 2), one(at + 3)]);
            4
        } else if starts("pllt") || starts("pllT") {
            // (buf, counts, displs, datatype) or (buf, counts, displs, datatypes)
            let types = if starts("pllt") { "One" } else { "Each" };
            let (address, counts, displs, types) =
                (name(at), one(at + 1), one(at + 2), format!("Types::{types}({})", one(at + 3)));
            let names = names(&[at, at + 1]);
            out.push(format!("Blocks::new({address}, {counts}, {displs}, {types}, {names})"));
            4
        } else if starts("pptnn") || starts("ppptnn") {
            // (origin_addr, .., result_addr, datatype, target_rank, target_disp): one element at each address
            let datatype = at + rest.find('t').expect("a type");
            out.extend((at..datatype).map(|address| element(address, datatype)));
            out.push(place(datatype + 1, "1".into(), datatype));
            datatype + 3 - at
        } else if starts("nnnt") {
            // (target_rank, target_disp, target_count, target_datatype)
            out.push(place(at, one(at + 2), at + 3));
            4
        } else if is_peer(at) {
            // (dest, tag), with the communicator, which may be at another position
            out.push(format!("Peer::new({}, {}, comm, {})", name(at), name(at + 1), names(&[at, at + 1])));
            2
        } else if starts("c") && has_peer || starts("w") && has_place {
            // Already part of an argument.
            1
        } else {
            out.push(one(at));
            1
        };
    }
    out
}
