//! Collectives of ranks that share the nodes of a simulated network, against the serial model.

use farside_core::coll::operation::Operation;
use farside_core::coll::table;
use farside_core::settings::Settings;
use farside_core::sim::{Interface, Network, Nodes, Simulation};
use farside_core::stats::Kind;
use farside_core::{ErrorKind, Job, Result, coll};

use super::algorithms::check;
use super::model::{Case, Made};

/// Nodes whose ranks are consecutive or not, with equal numbers of ranks or not.
const LAYOUTS: [&[u32]; 6] =
    [&[0, 0, 1], &[0, 1, 0], &[0, 0, 1, 1], &[0, 1, 1, 1, 0], &[0, 0, 0, 1, 2, 2, 2], &[0, 1, 2, 0, 0, 1, 3, 0]];

fn simulation(of: &[u32]) -> Simulation {
    let nodes = Nodes { of: of.to_vec(), within: Interface::log_p(200.0, 50.0, 50.0) };
    let network = Network { nodes: Some(nodes), jitter: 500.0, ..Network::default() };
    Simulation::new(of.len()).network(network)
}

fn on_nodes(f: impl Fn(&Job, &[u32]) -> Result<()>) {
    for (seed, of) in (0..).zip(LAYOUTS) {
        simulation(of).seed(seed).run(|job| f(job, of)).unwrap_or_else(|e| panic!("nodes {of:?}: {e}"));
    }
}

#[test]
fn every_algorithm_in_two_levels() {
    on_nodes(|job, nodes| {
        let team = job.world()?;
        let all = Operation::ALL.into_iter().flat_map(table::of);
        all.filter(|a| a.name.starts_with("two-level")).try_for_each(|a| check(&team, a, nodes))?;
        team.barrier()
    });
}

/// Calls without a given algorithm, in teams of some of the ranks in another order, and operators that do not commute.
#[test]
fn selected_algorithms_and_teams_of_some_ranks() {
    on_nodes(|job, _| {
        let world = job.world()?;
        let others: Vec<usize> = (0..job.size()).rev().filter(|rank| rank % 4 != 1).collect();
        for team in [Some(world.clone()), world.subteam(&others)?].into_iter().flatten() {
            for operation in Operation::ALL {
                let plain = Case { root: team.size() / 2, ..Case::new(operation) };
                let plain = if operation.is_rooted() { plain } else { Case { root: 0, ..plain } };
                for commutative in [false, true] {
                    for elements in [1, 5, 9000] {
                        let mut made = Made::new(&team, Case { commutative, elements, ..plain });
                        made.start(&team, &[])?.wait()?;
                        made.assert();
                    }
                }
            }
            (0..8).try_for_each(|_| team.barrier())?;
        }
        world.barrier()
    });
}

/// No rank leaves a barrier before the last one has entered it.
#[test]
fn barriers_of_a_team_wait_for_all_ranks() {
    on_nodes(|job, _| {
        let team = job.world()?;
        for late in 0..team.size() {
            let wait = std::time::Duration::from_millis(1);
            job.align()?;
            let begin = job.device().now();
            if team.rank() == late {
                job.device().compute(wait);
            }
            team.barrier()?;
            assert!(job.device().now() - begin >= wait, "rank {late} is late");
        }
        Ok(())
    });
}

/// Ranks that disagree about the number of collectives before a barrier get an error.
#[test]
fn barriers_of_a_team_find_other_calls() {
    let run = simulation(&[0, 0, 1, 1]).run(|job| {
        let team = job.world()?;
        if job.rank() == 3 {
            coll::allreduce(&team, &[1], &mut |low, high| low[0] += high[0])?;
        }
        team.barrier()
    });
    assert_eq!(run.unwrap_err().kind(), ErrorKind::Mismatch);
}

/// A setting fixes the algorithms of both levels, and excludes two levels: then barriers are signals.
#[test]
fn settings_choose_the_parts() {
    for (text, messages) in [("barrier:two-level(flat,central-counter)", 10), ("barrier:dissemination", 0)] {
        let settings = Settings::from_lookup(|name| (name == "FARSIDE_COLL").then(|| text.to_owned())).unwrap();
        let run = simulation(&[0, 0, 0, 1, 1, 1]).settings(settings).run(|job| {
            let team = job.world()?;
            team.barrier()?;
            let before = job.stats();
            team.barrier()?;
            Ok((job.stats() - before).count(Kind::Send))
        });
        assert_eq!(run.unwrap().results.iter().sum::<u64>(), messages, "{text}");
    }
}
