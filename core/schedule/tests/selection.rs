//! Every call has an algorithm that can make it; all rows of the table are legal and used; settings fix an algorithm.

use std::collections::HashSet;

use farside_schedule::operation::{Call, Neighbors, Operation};
use farside_schedule::selection::{Choice, Class, Facts, Origin, Placement, ROWS, Row, Rule, Rules, Selection, row};
use farside_schedule::table;

/// Elements, of a vector or a block.
const ELEMENTS: [u64; 12] = [0, 1, 8, 256, 1024, 2049, 6001, 20_000, 93_000, 200_000, 600_000, 1 << 40];

/// Calls of all kinds of `p` ranks, at rank `p / 2`, with their facts.
fn calls(operation: Operation, p: u32, mut each: impl FnMut(&Call<'_>, &Facts)) {
    let irregular: Vec<u64> = (0..u64::from(2 * p)).map(|i| i % 4 * 100).collect();
    let neighbors = Neighbors { sources: &[0], destinations: &[0] };
    // Two nodes of consecutive ranks, and of ranks in turn.
    let layouts: [Vec<u32>; 2] = [(0..p).map(|rank| 2 * rank / p).collect(), (0..p).map(|rank| rank % 2).collect()];
    for elements in ELEMENTS {
        for (sizes, sizes_known) in [(&[][..], true), (&irregular[..], true), (&irregular[..], false)] {
            if elements > 0 && !sizes.is_empty() || operation.is_of_a_vector() && !sizes.is_empty() {
                continue;
            }
            let call = Call { elements, sizes, sizes_known, neighbors, ..Call::new(operation, p / 2, p) };
            let call = |switch| Call { switch, ..call };
            for placement in [Placement::Anywhere, Placement::OneNode, Placement::OversubscribedNode] {
                for (commutative, switch) in [(true, false), (false, false), (true, true)] {
                    each(&call(switch), &Facts::new(&call(switch), 1, commutative, placement));
                }
            }
            for nodes in layouts.iter().filter(|_| p > 2) {
                let call = Call { nodes, lends: false, ..call(false) };
                for commutative in [true, false] {
                    each(&call, &Facts::new(&call, 1, commutative, Placement::Anywhere));
                }
            }
        }
    }
}

#[test]
fn every_call_has_an_algorithm_that_is_for_it() {
    for operation in Operation::ALL {
        let mut used = HashSet::new();
        for p in 1..=300 {
            calls(operation, p, |call, facts| {
                let (row, choice) = row(call, facts);
                used.insert(*row);
                let Choice { algorithm, parameters } = &choice;
                let what = || format!("{} by {choice}, {call:?}, {facts:?}", operation.name());
                assert_eq!(algorithm.operation, operation);
                assert!((algorithm.applies)(&Call { parameters, ..*call }), "{}", what());
                assert!(facts.commutative || !algorithm.commutative, "{}", what());
                assert_eq!(*parameters, algorithm.within_limits(parameters), "{}", what());
                let (selected, origin) = Selection::default().select(call, facts);
                assert_eq!((selected.to_string(), origin), (choice.to_string(), Origin::Table));
            });
        }
        let unused: Vec<&Row> = ROWS.iter().filter(|r| r.operation == operation && !used.contains(*r)).collect();
        assert!(unused.is_empty(), "rows that are never used: {unused:?}");
    }
}

#[test]
fn every_row_names_an_algorithm_and_no_more_parameters_than_it_has() {
    let facts = Facts { bytes: 0, commutative: true, placement: Placement::OneNode };
    for row in ROWS {
        let choice = row.choice(&facts).unwrap_or_else(|| panic!("{row:?}: there is no such algorithm"));
        assert!(row.parameters.len() <= choice.algorithm.parameters.len(), "{row:?}");
    }
}

#[test]
fn facts_count_bytes() {
    let facts = |operation, sizes: &[u64], sizes_known| {
        let call = Call { elements: 10, sizes, sizes_known, ..Call::new(operation, 1, 4) };
        Facts::new(&call, 8, true, Placement::OneNode).bytes
    };
    let sizes = [1, 0, 5, 2];
    assert_eq!(facts(Operation::Broadcast, &[], true), 80);
    assert_eq!(facts(Operation::Scatter, &[], true), 80);
    assert_eq!(facts(Operation::Allgather, &[], true), 320);
    assert_eq!(facts(Operation::Scatter, &sizes, true), 16);
    assert_eq!(facts(Operation::Allgather, &sizes, true), 64);
    // Sizes that are not the same at all ranks are not used.
    assert_eq!(facts(Operation::Gather, &sizes, false), 0);
    assert_eq!(facts(Operation::Alltoall, &[1, 0, 5, 2, 1, 1, 1, 1], true), 0);
    assert_eq!(facts(Operation::NeighborAllgather, &[1], true), 0);
}

#[test]
fn a_setting_fixes_the_algorithm_where_it_is_for_the_call() {
    for operation in Operation::ALL {
        for a in table::of(operation) {
            let choice = Choice { algorithm: a, parameters: a.defaults() };
            let text = choice.to_string();
            let user = Rules::of_setting(&format!("scan:chain(3), {}:{text}", operation.name())).unwrap();
            let selection = Selection { user, ..Selection::default() };
            for p in [1, 2, 3, 8, 11, 100] {
                calls(operation, p, |call, facts| {
                    let (chosen, origin) = selection.select(call, facts);
                    if choice.applies(call, facts) {
                        assert_eq!((chosen.to_string(), origin), (text.clone(), Origin::User), "{call:?}");
                    } else if operation != Operation::Scan {
                        let expected = row(call, facts).1.to_string();
                        assert_eq!((chosen.to_string(), origin), (expected, Origin::Table), "{text}, {call:?}");
                    }
                });
            }
        }
        assert!(Rules::of_setting("auto").unwrap().is_empty());
    }
}

#[test]
fn a_file_of_rules_fixes_algorithms_for_some_calls() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rules");
    let text = "# Short vectors of few ranks.\nallreduce 2-8 0-1023 * ring\n\nallreduce 4 * one-node linear # last\n";
    std::fs::write(&path, text).unwrap();
    let rules = Rules::of_setting(path.to_str().unwrap()).unwrap();
    let found = |ranks, bytes, placement| {
        let call = Call { elements: bytes, ..Call::new(Operation::Allreduce, 0, ranks) };
        let facts = Facts { bytes, commutative: true, placement };
        rules.find(&call, &facts).map(|choice| choice.algorithm.name)
    };
    assert_eq!(found(8, 1023, Placement::Anywhere), Some("ring"));
    assert_eq!(found(8, 1024, Placement::Anywhere), None);
    assert_eq!(found(9, 8, Placement::Anywhere), None);
    // The last rule that holds is used.
    assert_eq!(found(4, 8, Placement::OneNode), Some("linear"));
    assert_eq!(found(4, 8, Placement::OversubscribedNode), Some("ring"));
    // Rules for nodes apply to their numbers of nodes and of ranks per node.
    let of_nodes: Rules = "allreduce * * * ring\nallreduce * * 2x4 rabenseifner".parse().unwrap();
    for (nodes, expected) in
        [(&[0, 0, 0, 0, 1, 1, 1][..], "rabenseifner"), (&[0, 0, 0, 1, 1, 1, 1], "rabenseifner"), (&[], "ring")]
    {
        let call = Call { nodes, ..Call::new(Operation::Allreduce, 0, 7) };
        let facts = Facts { bytes: 8, commutative: true, placement: Placement::Anywhere };
        assert_eq!(of_nodes.find(&call, &facts).unwrap().algorithm.name, expected, "{nodes:?}");
        let rule = Rule::of_class(&Class::of(&call, &facts), Choice::parse(Operation::Allreduce, "ring").unwrap());
        let expected = if nodes.is_empty() { "7x1" } else { "2x4" };
        assert_eq!(rule.to_string(), format!("allreduce 7 8-15 {expected} ring"));
    }
    // The text of rules can be parsed again.
    assert_eq!(of_nodes.to_string().parse::<Rules>().unwrap().to_string(), of_nodes.to_string());
    assert_eq!(rules.to_string().parse::<Rules>().unwrap().to_string(), rules.to_string());
    for (wrong, said) in [
        ("allreduce 2-8 0-1023 ring", "line 1"),
        ("allreduce 8-2 * * ring", "\"8-2\" is not a number"),
        ("\nallreduce 2 * here ring", "line 2: there is no placement \"here\"; allowed are anywhere, one-node"),
        ("allreduce 2 * * rings", "no algorithm of this name"),
        ("gathers 2 * * flat", "no operation \"gathers\""),
    ] {
        std::fs::write(&path, wrong).unwrap();
        assert_refused(path.to_str().unwrap(), &[said]);
    }
    std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
    assert_refused(path.to_str().unwrap(), &["more than 1048576 bytes"]);
    assert_refused("/nonexistent/rules", &["No such file"]);
}

#[test]
fn settings_of_algorithms_take_defaults_for_what_is_not_given() {
    let parse = |text: &str| Choice::parse(Operation::Broadcast, text).map(|c| c.to_string());
    assert_eq!(parse("k-ary(8)").unwrap(), "k-ary(8,1)");
    assert_eq!(parse("k-ary ( 8 , 3 )").unwrap(), "k-ary(8,3)");
    assert_eq!(parse("flat-rendezvous").unwrap(), "flat-rendezvous");
    assert_eq!(parse("flat()").unwrap(), "flat(1)");
}

/// Asserts that a setting cannot be read, and that the error names it and has these texts.
fn assert_refused(text: &str, said: &[&str]) {
    let shown = Rules::of_setting(text).unwrap_err();
    for part in ["FARSIDE_COLL", &format!("{text:?}")].iter().chain(said) {
        assert!(shown.contains(part), "{text}: {shown} should contain {part}");
    }
}

#[test]
fn a_wrong_algorithm_is_an_error_that_says_what_is_allowed() {
    for (text, said) in [
        ("scatter-rong", &["allowed are ", "scatter-ring", "k-ary(k,segments)"][..]),
        ("", &["allowed are "]),
        ("k-ary(1)", &["k is \"1\"", "2 to 256"]),
        ("k-ary(2,many)", &["segments is \"many\"", "1 to 65536"]),
        ("k-ary(2,3,4)", &["k-ary has 2 parameters, but 3 are given"]),
        ("scatter-ring(1)", &["scatter-ring has 0 parameters, but 1 are given"]),
        ("k-ary(2", &["does not end with `)`"]),
        ("k-ary(2,-3)", &["segments is \"-3\""]),
        ("k-ary(,)", &["k is \"\""]),
    ] {
        assert_refused(&format!("broadcast:{text}"), said);
    }
    assert_refused("broadcast", &["OPERATION:ALGORITHM"]);
    assert_refused("bcast:flat", &["no operation \"bcast\"", "neighbor_alltoall"]);
    assert_refused("broadcast:flat(1),", &["\"\" is not OPERATION:ALGORITHM"]);
}
