//! Conveyors and updates on simulated networks: every item once, or an error that names the lost rank; costs with many
//! ranks.

use std::cell::RefCell;
use std::time::Duration;

use farside_core::sim::{Network, Simulation};
use farside_core::stats::Kind;
use farside_rma::aggregate::{Conveyor, Options};
use farside_rma::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The items of a rank: destinations.
fn drawn(rank: usize, ranks: usize, seed: u64) -> Vec<usize> {
    let mut rng = StdRng::seed_from_u64(seed << 16 | rank as u64);
    let count = rng.random_range(0..400);
    (0..count).map(|_| rng.random_range(0..ranks)).collect()
}

/// Each item is answered by its target, and each answer counted at its owner, in a conveyor and in symmetric memory.
fn exchange(team: &Team, seed: u64, options: Options) -> Result<()> {
    let (p, me) = (team.size(), team.rank());
    let sums = Symmetric::<u64>::allocate(team, p)?;
    let mut updates = sums.aggregated_with(Op::Sum, options)?;
    let mut conveyor = Conveyor::<[u32; 2]>::with(team, options)?;
    let mine = drawn(me, p, seed);
    let mut answers = vec![0; mine.len()];
    let items = mine.iter().enumerate().map(|(i, rank)| (*rank, [i as u32, 0]));
    let (mut received, mut failed) = (0, Ok(()));
    conveyor.drive(items, |outbox, from, [number, is_answer]| {
        if is_answer == 1 {
            answers[number as usize] += 1;
            return;
        }
        received += 1;
        let added = updates.add(from, me, 1);
        failed = std::mem::replace(&mut failed, Ok(())).and(added);
        outbox.push(from, [number, 1]);
    })?;
    failed?;
    updates.finish()?;
    assert!(answers.iter().all(|count| *count == 1), "{answers:?}");
    let expected = (0..p).flat_map(|from| drawn(from, p, seed)).filter(|rank| *rank == me).count();
    assert_eq!(received, expected);
    let own = sums.local().to_vec()?;
    assert!((0..p).all(|rank| own[rank] as usize == mine.iter().filter(|to| **to == rank).count()), "{own:?}");
    conveyor.free()?;
    sums.free()
}

#[test]
fn every_item_arrives_once_or_an_error_names_the_lost_rank() {
    let seeds = std::env::var("FARSIDE_TEST_SEEDS").map_or(40, |seeds| seeds.parse().unwrap());
    let mut lost = 0;
    for seed in 0..seeds {
        let rng = &mut StdRng::seed_from_u64(seed);
        let ranks = rng.random_range(2..=9);
        let mut network = Network { reorders: rng.random(), ..Network::default() };
        network.jitter = [0.0, 5000.0, 50_000.0][rng.random_range(0..3)];
        if rng.random_bool(0.4) {
            (network.loss, network.retry) = (rng.random_range(0.001..0.1), 4000.0);
        }
        let options = Options { bytes: rng.random_range(4000..20_000), hops: Some(rng.random_range(1..=3)) };
        let mut simulation = Simulation::new(ranks).seed(seed).network(network);
        if rng.random_bool(0.3) {
            simulation = simulation.minimal();
        } else if rng.random() {
            simulation = simulation.incoherent_atomics();
        }
        let victim = rng.random_bool(0.4).then(|| rng.random_range(0..ranks));
        if let Some(victim) = victim {
            simulation = simulation.dies(victim, Duration::from_nanos(rng.random_range(0..400_000)));
        }
        let errors = RefCell::new(Vec::new());
        let run = simulation.run(|job| {
            let done = job.world().and_then(|team| exchange(&team, seed, options));
            if let Err(e) = &done {
                errors.borrow_mut().push((job.rank(), e.again()));
            }
            done
        });
        let errors = errors.into_inner();
        // A rank that ends with an error is lost to the others.
        for (rank, e) in &errors {
            let named = e.blamed();
            let known = named.is_some() && named == victim || errors.iter().any(|(other, _)| Some(*other) == named);
            assert!(e.kind() == ErrorKind::PeerLost && known, "seed {seed}, rank {rank}: {e}");
        }
        match run {
            Ok(_) => assert!(errors.is_empty()),
            Err(e) => assert!(victim.is_some(), "seed {seed}, {options:?}: {e}"),
        }
        lost += usize::from(!errors.is_empty());
    }
    println!("{seeds} seeds; in {lost} a rank was lost before the end");
    assert!(lost > 3, "{lost} seeds in which a rank was lost early enough");
}

/// Owners apply updates by their processors. Where the interface's atomics are not coherent with these, other atomics of
/// the memory are refused until the updates are finished.
#[test]
fn atomics_of_memory_whose_updates_are_aggregated_are_refused() {
    let run = Simulation::new(3).incoherent_atomics().run(|job| {
        let team = job.world()?;
        let sums = Symmetric::<u64>::allocate(&team, 1)?;
        let right = (team.rank() + 1) % 3;
        for round in 1..4 {
            sums.atomic(right, 0)?.add(1)?;
            let mut updates = sums.aggregated(Op::Sum)?;
            for refused in [sums.atomic(right, 0)?.add(1), sums.atomic(right, 0)?.compare_exchange(0, 1).map(drop)] {
                let e = refused.unwrap_err();
                assert!(e.kind() == ErrorKind::WrongEpoch && e.to_string().contains("aggregated"), "{e}");
            }
            (0..30).try_for_each(|i| updates.add(i % 3, 0, 1))?;
            updates.finish()?;
            sums.atomic(right, 0)?.add(1)?;
            sums.barrier()?;
            assert_eq!(sums.local().load(0)?, 32 * round);
            sums.barrier()?;
        }
        sums.free()
    });
    run.unwrap();
}

mod scale {
    use super::*;

    /// Every rank updates all others; returns the maximum number of messages of a rank.
    fn updates(ranks: usize, each: usize) -> u64 {
        let most = RefCell::new(0);
        let run = Simulation::new(ranks).run(|job| {
            let team = job.world()?;
            let (me, sums) = (team.rank(), Symmetric::<u64>::allocate(&team, 1)?);
            let mut updates = sums.aggregated(Op::Sum)?;
            job.align()?;
            let before = job.stats();
            for i in 0..each * ranks {
                updates.add((me + i) % ranks, 0, 1)?;
            }
            updates.finish()?;
            let used = (job.stats() - before).count(Kind::Send);
            most.replace_with(|most| used.max(*most));
            assert_eq!(sums.local().load(0)?, (each * ranks) as u64);
            sums.free()
        });
        run.unwrap();
        most.into_inner()
    }

    /// With two updates for each rank, blocks leave partly filled, one to each target, and two rounds end the phase.
    #[test]
    fn messages_with_64_ranks() {
        let messages = updates(64, 2);
        println!("64 ranks: {messages} messages of a rank for {} updates", 2 * 64);
        assert!(messages <= 2 * 63 + 12, "{messages}");
    }

    #[test]
    #[ignore = "by `ci/test scale`"]
    fn messages_with_1024_ranks() {
        let messages = updates(1024, 4);
        println!("1024 ranks: {messages} messages of a rank for {} updates", 4 * 1024);
        // Two hops over rows of 32 ranks, and a message back for each block.
        assert!(messages < 1024, "{messages}");
    }

    /// Frontera (TACC): 44 nodes of 100 Gbit/s a leaf switch, with 18 uplinks of 200 Gbit/s (its user guide); latency and
    /// overheads are those of the default interface, and 130 ns a switch is assumed.
    fn frontera() -> Network {
        Network { topology: "fat-tree:44x94/36x1".parse().unwrap(), hop: 130.0, ..Network::default() }
    }

    /// What one hop or several take: of a rank, in virtual time.
    struct Rates {
        /// Updates a microsecond.
        simulated: f64,
        predicted: f64,
        /// Bytes of memory that the updates take.
        memory: usize,
    }

    /// Resident memory of this process, of which the ranks of a simulation are a part.
    fn resident() -> usize {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        4096 * pages.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap()
    }

    /// Every rank updates elements of random ranks, with 1 MiB for blocks.
    fn rates(ranks: usize, hops: usize) -> Rates {
        const BYTES: usize = 1 << 20;
        // Blocks that are filled, in progress, and held for each sender.
        let side = (1..).find(|side: &usize| side.pow(hops as u32) >= ranks).unwrap();
        let (channels, held, record) = if hops == 1 { (ranks - 1, 5, 16) } else { (hops * side, 7, 24) };
        let records = (BYTES / (channels * held)).min(64 << 10) / record;
        // So many that most blocks are full.
        let each = (8 * records * side).min((16 << 20) / ranks).max(1 << 10);
        let (end, memory) = (RefCell::new(Duration::ZERO), RefCell::new(0));
        let run = Simulation::new(ranks).network(frontera()).run(|job| {
            let team = job.world()?;
            let (me, sums) = (team.rank(), Symmetric::<u64>::allocate(&team, 1)?);
            job.align()?;
            let before = resident();
            let mut updates = sums.aggregated_with(Op::Sum, Options { bytes: BYTES, hops: Some(hops) })?;
            let mut rng = StdRng::seed_from_u64(me as u64);
            job.align()?;
            let start = job.device().now();
            for _ in 0..each {
                updates.add(rng.random_range(0..ranks), 0, 1)?;
            }
            updates.finish()?;
            let took = job.device().now().duration_since(start);
            end.replace_with(|end| took.max(*end));
            if me == 0 {
                *memory.borrow_mut() = resident().saturating_sub(before) / ranks;
            }
            let mut sum = [sums.local().load(0)?];
            team.allreduce(&mut sum, Op::Sum)?;
            assert_eq!(sum, [(each * ranks) as u64]);
            sums.free()
        });
        run.unwrap();
        // At each hop an item stays where it is with probability 1 / side. A block and its acknowledgement take o of both
        // ends, and the bytes of a block G; the last block to a rank may be partly filled.
        let network = frontera().interface;
        let blocks = hops * (side - 1) * (each / side).div_ceil(records);
        let bytes = hops * (each - each / side) * record;
        let overheads = 2.0 * (network.send_overhead + network.receive_overhead);
        let predicted = blocks as f64 * overheads + network.gap_per_byte * bytes as f64;
        Rates {
            simulated: each as f64 / end.into_inner().as_secs_f64() / 1e6,
            predicted: each as f64 / predicted * 1e3,
            memory: memory.into_inner(),
        }
    }

    fn rates_with(ranks: usize, hops: std::ops::RangeInclusive<usize>) {
        let all: Vec<Rates> = hops.clone().map(|hops| rates(ranks, hops)).collect();
        for (hops, Rates { simulated, predicted, memory }) in hops.zip(&all) {
            println!(
                "{ranks} ranks, {hops} hops: {simulated:.1} million updates a second and rank, predicted {predicted:.1}; \
                 {memory} bytes of a rank"
            );
        }
        // Whether the second number of hops beats the first is predicted.
        let beats = |of: &dyn Fn(&Rates) -> f64| of(&all[1]) > of(&all[0]);
        assert_eq!(beats(&|rates| rates.predicted), beats(&|rates| rates.simulated));
        // The memory that was granted, and the state of channels.
        all.iter().for_each(|rates| assert!(rates.memory < (5 << 20) / 4 + 200 * ranks, "{} bytes", rates.memory));
    }

    #[test]
    #[ignore = "by `ci/test scale`"]
    fn updates_of_64_ranks() {
        rates_with(64, 1..=3);
    }

    #[test]
    #[ignore = "by `ci/test scale`"]
    fn updates_of_1024_ranks() {
        rates_with(1024, 1..=3);
    }

    #[test]
    #[ignore = "by `ci/test scale`"]
    fn updates_of_4096_ranks() {
        // One hop takes 4,095 messages of each rank.
        rates_with(4096, 2..=3);
    }
}
