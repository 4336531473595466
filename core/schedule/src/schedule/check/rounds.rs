//! Rounds of an algorithm if each rank sends and receives at most one message in a round (one port, full duplex), each
//! in the order of its steps.

use super::graph::{Graph, Node};
use crate::schedule::{Action, Port};

/// The number of rounds of the schedules of all ranks. A message is sent in the first round after the rounds in which
/// its rank received the messages on which it depends, and after the round of the message that its rank sends before
/// it. It is received in that round, or in a later one if other messages are received first. Blocks that are sent in a
/// round may be overwritten by a message received in the same round.
///
/// The steps must end. If a rank cannot receive in the order of its steps, only a part of the rounds can be counted.
pub(crate) fn rounds(graph: &Graph<'_>) -> u32 {
    let mut walk = Walk { graph, missing: vec![0; graph.len()], passed: vec![0; graph.len()], ready: Vec::new() };
    // For each step: the next step on the same port.
    let mut after_on_port = vec![None::<u32>; graph.len()];
    for (schedule, r) in graph.schedules.iter().zip(0..) {
        let mut last = [None::<u32>; 2];
        for (step, i) in schedule.steps().zip(0..) {
            let mut missing = step.after.len() as u32;
            if let Some((port, _)) = step.action.message(r) {
                missing += u32::from(port == Port::In);
                if let Some(before) = last[port as usize].replace(i) {
                    after_on_port[graph.index((r, before))] = Some(i);
                    missing += 1;
                }
            }
            walk.missing[graph.index((r, i))] = missing;
            if missing == 0 {
                walk.ready.push((r, i));
            }
        }
    }
    let (mut most, mut in_switch) = (0, Vec::new());
    while let Some(node) = walk.ready.pop() {
        let passed = walk.passed[graph.index(node)];
        // Rounds after which the dependents may start, and after which the port is free.
        let (done, free) = match graph.action(node).message(node.0) {
            Some((Port::Out, _)) => {
                walk.reached(graph.partner(node), passed);
                (passed, passed + 1)
            }
            Some((Port::In, _)) => (passed + 1, passed + 1),
            // The message to the switch, and the answer when all have arrived.
            None if graph.action(node) == Action::EnterSwitch => {
                in_switch.push(node);
                if in_switch.len() < graph.schedules.len() {
                    continue;
                }
                let passed = in_switch.iter().map(|node| walk.passed[graph.index(*node)]).max().unwrap_or(0) + 2;
                most = most.max(passed);
                for (rank, step) in std::mem::take(&mut in_switch) {
                    graph.dependents((rank, step)).iter().for_each(|d| walk.reached((rank, *d), passed));
                }
                continue;
            }
            None => (passed, passed),
        };
        most = most.max(free);
        if let Some(next) = after_on_port[graph.index(node)] {
            walk.reached((node.0, next), free);
        }
        graph.dependents(node).iter().for_each(|d| walk.reached((node.0, *d), done));
    }
    most
}

struct Walk<'a> {
    graph: &'a Graph<'a>,
    /// For each step: the number of unreached predecessors. Predecessors are its dependencies, the previous step on its
    /// port, and its message.
    missing: Vec<u32>,
    /// For each step: the number of rounds that must pass before it.
    passed: Vec<u32>,
    ready: Vec<Node>,
}

impl Walk<'_> {
    /// Records that a predecessor of `node` permits it to start when `passed` rounds have passed.
    fn reached(&mut self, node: Node, passed: u32) {
        let at = self.graph.index(node);
        self.passed[at] = self.passed[at].max(passed);
        self.missing[at] -= 1;
        if self.missing[at] == 0 {
            self.ready.push(node);
        }
    }
}
