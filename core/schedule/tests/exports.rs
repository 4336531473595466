//! Schedules as GOAL text and as pictures have the content of the schedules.

use std::collections::{HashMap, HashSet};

use farside_schedule::operation::{Call, Operation};
use farside_schedule::schedule::picture::{Labels, svg};
use farside_schedule::schedule::predict::{Bytes, LogGP};
use farside_schedule::schedule::{Schedule, goal};
use farside_schedule::table;

use super::cost::cost;

/// Lines of GOAL by label: the labelled steps, and the labels that they require.
type Steps<'a> = HashMap<&'a str, (Vec<&'a str>, Vec<&'a str>)>;

/// The steps of each rank, parsed by the grammar of LogGOPSim's `txt2bin`.
fn read(text: &str) -> Vec<Steps<'_>> {
    let mut lines = text.lines().filter(|l| !l.is_empty());
    let size: usize = lines.next().unwrap().strip_prefix("num_ranks ").unwrap().parse().unwrap();
    let mut ranks = Vec::new();
    while let Some(line) = lines.next() {
        assert_eq!(line, format!("rank {} {{", ranks.len()));
        let mut steps = Steps::new();
        for line in lines.by_ref().take_while(|l| *l != "}") {
            match line.split_once(": ") {
                Some((label, step)) => {
                    assert!(steps.insert(label, (step.split(' ').collect(), Vec::new())).is_none(), "{label} twice");
                }
                None => {
                    let (label, before) = line.split_once(" requires ").unwrap();
                    assert!(steps.contains_key(before), "{before} is not known");
                    steps.get_mut(label).unwrap().1.push(before);
                }
            }
        }
        ranks.push(steps);
    }
    assert_eq!(ranks.len(), size);
    ranks
}

fn schedule(operation: Operation, name: &str, parameters: &[u32], p: u32, rank: u32) -> Schedule {
    let a = table::named(operation, name).unwrap();
    (a.build)(&Call { parameters, elements: 96, ..Call::new(operation, rank, p) })
}

/// Every message has both sides with the same size and tag, and a simulator that waits only for the required labels
/// ends.
#[test]
fn goal_text_is_a_graph_that_ends() {
    let algorithms: [(Operation, &str, &[u32]); 4] = [
        (Operation::Barrier, "dissemination", &[2]),
        (Operation::Allreduce, "rabenseifner", &[1]),
        (Operation::Allgather, "bruck", &[]),
        (Operation::Scatter, "binomial", &[]),
    ];
    for (operation, name, parameters) in algorithms {
        for p in [1, 2, 3, 6, 9] {
            let mut text = Vec::new();
            let of = |rank| schedule(operation, name, parameters, p, rank);
            let bytes = if operation.is_of_a_vector() { Bytes::Vector(96) } else { Bytes::Each(96) };
            goal::write(&mut text, p, of, bytes, 0.5).unwrap();
            let ranks = read(std::str::from_utf8(&text).unwrap());
            let (mut sent, mut messages) = (HashSet::new(), 0);
            let mut done: Vec<HashSet<&str>> = vec![HashSet::new(); p as usize];
            let mut goes_on = true;
            while std::mem::take(&mut goes_on) {
                for (r, steps) in ranks.iter().enumerate() {
                    for (label, (step, before)) in steps {
                        if done[r].contains(label) || !before.iter().all(|b| done[r].contains(b)) {
                            continue;
                        }
                        let ends = match step[..] {
                            ["send", size, "to", to, "tag", tag] => {
                                messages += 1;
                                sent.insert((r, to.parse::<usize>().unwrap(), size, tag))
                            }
                            ["recv", size, "from", source, "tag", tag] => {
                                sent.remove(&(source.parse().unwrap(), r, size, tag))
                            }
                            ["calc", time] => time.parse::<u64>().is_ok(),
                            _ => panic!("{step:?}"),
                        };
                        if ends {
                            done[r].insert(label);
                            goes_on = true;
                        }
                    }
                }
            }
            assert!(sent.is_empty() && done.iter().zip(&ranks).all(|(d, steps)| d.len() == steps.len()), "{name} {p}");
            assert_eq!(messages, cost(operation, name, parameters, p).messages.iter().sum::<u32>(), "{name} {p}");
        }
    }
}

#[test]
fn goal_text_of_a_reduction() {
    let mut text = Vec::new();
    let of = |rank| schedule(Operation::Reduce, "binomial", &[], 2, rank);
    goal::write(&mut text, 2, of, Bytes::Vector(96), 0.5).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("recv 96b from 1 tag 0") && text.contains("calc 48"), "{text}");
    assert!(text.contains("send 96b to 0 tag 0"), "{text}");
}

/// A picture has a lane for each rank, an arrow for each message, escaped labels, and nothing outside.
#[test]
fn pictures_have_ranks_messages_and_labels() {
    for (operation, name, parameters, p) in [
        (Operation::Barrier, "dissemination", &[1][..], 8),
        (Operation::Allreduce, "rabenseifner", &[1][..], 6),
        (Operation::Broadcast, "chain", &[3][..], 100),
        (Operation::Barrier, "dissemination", &[1][..], 1),
    ] {
        let of = |rank| schedule(operation, name, parameters, p, rank);
        let labels = Labels { title: "a < b & \"c\"", subtitle: "by <hand>", unit: "\u{b5}s" };
        let text = svg(labels, p, of, Bytes::Vector(96), &LogGP::log_p(1.0, 0.2, 0.1)).unwrap();
        let count = |what: &str| text.matches(what).count() as u32;
        let messages: u32 = cost(operation, name, parameters, p).messages.iter().sum();
        // The legend has two arrows.
        let arrows = count(r#"<line class="message""#) + count(r#"<line class="signal""#);
        assert_eq!((count(r#"class="lane""#), arrows), (p, messages + 2), "{name}");
        assert!(text.contains("a &lt; b &amp; &quot;c&quot;") && text.contains("by &lt;hand&gt;"));
        assert!(text.contains(">rank 0<") && text.contains("time in \u{b5}s"));
        assert!(!text.contains("NaN") && !text.contains("inf"));
        let opened = count("<line") + count("<rect") + count("<path");
        assert_eq!(opened, count("/>"), "elements without content are closed");
        assert_eq!(count("<text"), count("</text>"));
    }
}
