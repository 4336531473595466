//! Rounds of an algorithm where each rank sends at most one message and receives at most one in a round (one port, full
//! duplex), each in the order of its steps.

use super::graph::{Graph, Node};
use crate::coll::schedule::Port;

/// The number of rounds that the schedules of all ranks take. A message goes in the first round after those in which its
/// rank got what it depends on, and after that of the message that its rank sends before it; it is received in that round,
/// or in a later one where other messages are received first. What is sent in a round may be overwritten by what is received
/// in the same.
///
/// The steps must end. Where receives of a rank cannot be in the order of its steps, those rounds that can be counted are.
pub fn rounds(graph: &Graph<'_>) -> u32 {
    let mut walk = Walk { graph, missing: vec![0; graph.len()], passed: vec![0; graph.len()], ready: Vec::new() };
    // The step that uses a port after a step.
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
    let mut most = 0;
    while let Some(node) = walk.ready.pop() {
        let passed = walk.passed[graph.index(node)];
        // Rounds that have passed when its dependents may start, and when its port is free.
        let (done, free) = match graph.action(node).message(node.0) {
            Some((Port::Out, _)) => {
                walk.reached(graph.partner(node), passed);
                (passed, passed + 1)
            }
            Some((Port::In, _)) => (passed + 1, passed + 1),
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
    /// How many of a step's predecessors are not reached: what it depends on, the step before it on its port, its message.
    missing: Vec<u32>,
    /// Rounds that must have passed before a step.
    passed: Vec<u32>,
    ready: Vec<Node>,
}

impl Walk<'_> {
    /// A predecessor of `node` lets it start when `passed` rounds have passed.
    fn reached(&mut self, node: Node, passed: u32) {
        let at = self.graph.index(node);
        self.passed[at] = self.passed[at].max(passed);
        self.missing[at] -= 1;
        if self.missing[at] == 0 {
            self.ready.push(node);
        }
    }
}
