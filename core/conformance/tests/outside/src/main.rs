//! A device of another author: it runs the checks of devices and the heat stencil.

mod am;
mod block;
mod device;
mod exchange;
mod fence;
mod lock;
mod pscw;

use block::Block;
use device::{Channels, MAX_PACKETS, Network};
use exchange::Exchange;
use farside_conformance::{Setup, Subject};
use farside_core::settings::Settings;
use farside_core::{Job, Result};
use farside_rma::{GlobalArray, Section};

type Start = fn(&GlobalArray<f64, 2>) -> Result<Box<dyn Exchange>>;

/// The four ways to exchange ghost cells.
const VERSIONS: [Start; 4] = [
    |plate| Ok(Box::new(fence::Fence::new(plate)?)),
    |plate| Ok(Box::new(pscw::Pscw::new(plate)?)),
    |plate| Ok(Box::new(lock::Lock::new(plate)?)),
    |plate| Ok(Box::new(am::ActiveMessages::new(plate)?)),
];
const SIZE: usize = 30;
const STEPS: u64 = 20;

/// Computes the plate by blocks, in each of the four ways, and compares it with one block.
fn heat(job: &Job) -> Result<()> {
    let hot = |row: usize, column: usize| ((row * 7 + column * 3) % 11) as f64;
    let mut serial = Block::new(Section::whole([SIZE, SIZE]), hot);
    (0..STEPS).for_each(|_| serial.step());
    let team = job.world()?;
    for start in VERSIONS {
        let plate = GlobalArray::<f64, 2>::new(&team, [SIZE, SIZE])?;
        let mut block = Block::new(plate.owned(team.rank())?, hot);
        let mut exchange = start(&plate)?;
        for step in 0..STEPS {
            exchange.exchange(step, &mut block)?;
            block.step();
        }
        exchange.free()?;
        plate.with_local(|mut view| {
            view.elements_mut().copy_from_slice(&block.cells());
            Ok(())
        })?;
        plate.sync()?;
        let mut cells = vec![0.0; SIZE * SIZE];
        plate.get((0..SIZE, 0..SIZE), &mut cells)?;
        assert!(cells == serial.cells(), "the plate is not that of a serial computation");
        plate.free()?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let settings = Settings::from_lookup(|_| None)?;
    let launch = |ranks: u32, body: &(dyn Fn(&Job) -> Result<()> + Sync)| {
        let network = Network::new(ranks);
        Job::threads_on(ranks as usize, &settings, |rank| Ok(Box::new(Channels::new(&network, rank))), body).map(drop)
    };
    for (name, user_memory) in [("channels", false), ("channels, user memory", true)] {
        let packet_room: farside_conformance::PacketRoom = Box::new(|_| MAX_PACKETS..=MAX_PACKETS);
        let setup = Setup { user_memory, quick: true, packet_room: Some(packet_room), ..Setup::default() };
        let report = farside_conformance::run(&Subject { name, setup, launch: &launch }, |_| true);
        println!("{report}");
        assert!(report.failed.is_empty(), "{report}");
    }
    launch(4, &heat)?;
    println!("heat: as a serial computation");
    Ok(())
}
