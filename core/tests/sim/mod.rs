//! The simulated network: conformance of its device with the device contract, times that the models give in closed
//! form, contention, faults, the replay of a seed, and the in-switch barrier.

mod faults;
mod models;
mod nodes;
mod scale;
mod stacks;
mod switch;
mod timeline;
mod times;
mod trees;

use farside_conformance::{Check, Setup, Subject};
use farside_core::device::Placement;
use farside_core::sim::{Network, Simulation};

/// Conformance with the device contract, with delays and reordering from several seeds.
fn conforms(check: &Check) {
    let hostile = Network { jitter: 5000.0, reorders: true, loss: 0.05, retry: 4000.0, ..Network::default() };
    let weak = |placement, atomics| Network { placement, lag: 5000.0, atomics, ..hostile.clone() };
    let late = weak(Placement::AtCompletion, true);
    let bare = weak(Placement::AtRead, false);
    for seed in 0..4 {
        let network = if seed == 0 { Network::default() } else { hostile.clone() };
        for (name, minimal, incoherent, network) in [
            ("sim", false, false, &network),
            ("sim, minimal", true, false, &network),
            ("sim, incoherent", true, true, &network),
            ("sim, late writes", seed % 2 == 0, false, &late),
            ("sim, writes late after completion, no atomics", seed % 2 == 1, false, &bare),
        ] {
            let subject = Subject {
                name,
                setup: Setup {
                    user_memory: minimal,
                    private_pages: !minimal,
                    quick: true,
                    packet_room: Some(Box::new(|_| 64..=64)),
                    ..Setup::default()
                },
                launch: &|ranks, body| {
                    let simulation = Simulation::new(ranks as usize).seed(seed).network(network.clone());
                    let simulation = if minimal { simulation.minimal() } else { simulation };
                    let simulation = if incoherent { simulation.incoherent_atomics() } else { simulation };
                    simulation.run(body).map(drop)
                },
            };
            let report = farside_conformance::run(&subject, |c| c.name == check.name);
            assert!(report.failed.is_empty(), "{name}, seed {seed}: {report}");
        }
    }
}

macro_rules! test_each {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let check = farside_conformance::checks().into_iter().find(|c| c.name == stringify!($name)).unwrap();
            conforms(&check);
        })*
    };
}
farside_conformance::for_each_check!(test_each);
