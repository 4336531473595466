//! The operations and tables of `farside-bench pgas` on Lamellar, with the same output format. Started by
//! `benches/pgas/run`.
//!
//!     pgas-lamellar [BLOCK_MS] [TABLE_BITS]
//!
//! Lamellar has no put with a flag: its row is a put, a put of the flag, and a loop that reads the flag. A remote call is an
//! active message that returns a number.

use std::process::exit;
use std::time::{Duration, Instant};

use lamellar::active_messaging::prelude::*;
use lamellar::array::prelude::*;
use lamellar::memregion::prelude::*;

const BLOCKS: usize = 5;
const SIZES: [usize; 3] = [8, 4096, 1 << 20];
const BATCH: usize = 1 << 14;
const BATCHES: usize = 16;

/// An active message that returns its number.
#[lamellar::AmData(Debug, Clone)]
struct Same {
    number: u64,
}

#[lamellar::am]
impl LamellarAM for Same {
    async fn exec(self) -> u64 {
        self.number
    }
}

fn wrong(what: &str) -> ! {
    eprintln!("{what} is wrong");
    exit(3)
}

struct Meter {
    world: LamellarWorld,
    block: Duration,
    /// Broadcasts the time of rank 0 to all ranks.
    time: SharedMemoryRegion<f64>,
}

impl Meter {
    fn is_first(&self) -> bool {
        self.world.my_pe() == 0
    }

    /// Seconds of one operation, at every rank: the median of five blocks of the same length.
    fn seconds(&self, mut run: impl FnMut(u64)) -> f64 {
        let (mut times, mut count, mut long) = (Vec::new(), 1, false);
        while times.len() < BLOCKS {
            self.world.barrier();
            let start = Instant::now();
            run(count);
            self.world.barrier();
            if self.is_first() {
                let time = start.elapsed().as_secs_f64();
                for rank in 0..self.world.num_pes() {
                    // SAFETY: the other ranks read it after the next barrier.
                    unsafe { self.time.put_buffer(rank, 0, vec![time]).block() };
                }
            }
            self.world.barrier();
            // SAFETY: written before the barrier, and again only after the barrier of the next block.
            let time = unsafe { self.time.as_slice()[0] };
            let wanted = self.block.as_secs_f64();
            if times.is_empty() && time < wanted / 2.0 && count < 1 << 40 {
                (count, long) = ((count as f64 * (wanted / time.max(1e-9)).clamp(2.0, 10.0)) as u64, false);
                continue;
            }
            // The median discards blocks in which a rank was interrupted; an additional first block is the warm-up.
            if !std::mem::replace(&mut long, true) {
                continue;
            }
            times.push(time / count as f64);
        }
        times.sort_by(f64::total_cmp);
        times[BLOCKS / 2]
    }

    fn line(&self, operation: &str, number: usize, figure: f64) {
        if self.is_first() {
            println!("{operation} {number} {figure:.6}");
        }
    }

    fn microseconds(&self, operation: &str, number: usize, share: f64, run: impl FnMut(u64)) {
        let seconds = self.seconds(run);
        self.line(operation, number, 1e6 * share * seconds);
    }

    fn millions(&self, operation: &str, each: usize, run: impl FnMut(u64)) {
        let seconds = self.seconds(run);
        self.line(operation, 8, each as f64 / seconds / 1e6);
    }

    /// `count` at the first rank, 0 at all others.
    fn own(&self, count: u64) -> u64 {
        if self.is_first() { count } else { 0 }
    }
}

fn transfers(meter: &Meter) {
    let region = meter.world.alloc_shared_mem_region::<u64>(SIZES[2] / 8).block();
    for size in SIZES {
        let from = meter.world.alloc_one_sided_mem_region::<u64>(size / 8);
        // SAFETY: only the first rank accesses the region of the second one.
        unsafe {
            from.as_mut_slice().iter_mut().zip(0..).for_each(|(word, i)| *word = i + size as u64);
            meter.microseconds("put", size, 1.0, |count| {
                (0..meter.own(count)).for_each(|_| region.put_buffer(1, 0, &from).block());
            });
            let into = meter.world.alloc_one_sided_mem_region::<u64>(size / 8);
            meter.microseconds("get", size, 1.0, |count| {
                for _ in 0..meter.own(count) {
                    let buffer = LamellarBuffer::from_one_sided_memory_region(into.clone());
                    region.get_into_buffer(1, 0, buffer).block();
                }
            });
            if meter.is_first() && into.as_slice() != from.as_slice() {
                wrong("the data put and read back");
            }
        }
    }
    meter.world.barrier();
}

fn atomics(meter: &Meter) {
    let ranks = meter.world.num_pes();
    let array = AtomicArray::<u64>::new(&meter.world, 2 * ranks, Distribution::Block).block();
    let (mut adds, mut fetches) = (0, 0);
    meter.microseconds("add", 8, 1.0, |count| {
        adds += meter.own(count);
        (0..meter.own(count)).for_each(|_| array.add(2, 1).block());
    });
    meter.microseconds("fetch_add", 8, 1.0, |count| {
        for _ in 0..meter.own(count) {
            if array.fetch_add(3, 1).block() != fetches {
                wrong("a fetched value");
            }
            fetches += 1;
        }
    });
    if meter.is_first() && array.load(2).block() != adds {
        wrong("a counter");
    }
    meter.world.barrier();
}

fn flags(meter: &Meter) {
    let me = meter.world.my_pe();
    let region = meter.world.alloc_shared_mem_region::<u64>(SIZES[2] / 8).block();
    let flag = meter.world.alloc_shared_mem_region::<u64>(1).block();
    let mut turn = 0;
    for size in SIZES {
        let data = meter.world.alloc_one_sided_mem_region::<u64>(size / 8);
        // SAFETY: the ranks take turns, by the flag, which is read as volatile.
        unsafe {
            data.as_mut_slice().fill(0);
            let put = |turn: u64, to: usize| {
                data.as_mut_slice()[0] = turn;
                region.put_buffer(to, 0, &data).block();
                flag.put_buffer(to, 0, vec![turn]).block();
            };
            let seen = flag.as_slice().as_ptr();
            meter.microseconds("put_signal", size, 0.5, |count| {
                for _ in 0..if me < 2 { count } else { 0 } {
                    turn += 1;
                    if me == 0 {
                        put(turn, 1);
                    }
                    while seen.read_volatile() < turn {
                        std::hint::spin_loop();
                    }
                    if me == 1 {
                        if region.as_slice()[0] != turn {
                            wrong("the data put before a flag");
                        }
                        put(turn, 0);
                    }
                }
            });
        }
    }
    meter.world.barrier();
}

fn calls(meter: &Meter) {
    meter.microseconds("call", 8, 1.0, |count| {
        for number in 0..meter.own(count) {
            if meter.world.exec_am_pe(1, Same { number }).block() != number {
                wrong("a result");
            }
        }
    });
}

/// A stream of pseudorandom numbers for each seed (splitmix64).
fn numbers(seed: usize) -> impl Iterator<Item = u64> {
    let mut state = seed as u64;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

fn tables(meter: &Meter, words: usize) {
    let ranks = meter.world.num_pes();
    let all = words * ranks;
    let mut random = numbers(meter.world.my_pe()).map(|number| (number % all as u64) as usize);
    let batches: Vec<Vec<usize>> = (0..BATCHES).map(|_| random.by_ref().take(BATCH).collect()).collect();
    let each = ranks * BATCH;
    let array = AtomicArray::<u64>::new(&meter.world, all, Distribution::Block).block();
    let mut added = 0;
    meter.millions("histogram_batch", each, |count| {
        batches.iter().cycle().take(count as usize).for_each(|batch| array.batch_add(batch, 1).block());
        added += count;
    });
    if array.sum().block() != Some(added * each as u64) {
        wrong("the sum of the table");
    }
    meter.world.barrier();
    let own = array.local_data();
    (0..words).for_each(|i| own.at(i).store((meter.world.my_pe() * words + i) as u64));
    drop(own);
    meter.world.barrier();
    let array = array.into_read_only().block();
    meter.millions("gather_batch", each, |count| {
        for batch in batches.iter().cycle().take(count as usize) {
            let values = array.batch_load(batch).block();
            if values[0] != batch[0] as u64 || values[BATCH - 1] != batch[BATCH - 1] as u64 {
                wrong("a gathered value");
            }
        }
    });
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (block_ms, bits) = (arguments.next().unwrap_or(20), arguments.next().unwrap_or(18));
    let world = LamellarWorldBuilder::new().build();
    if world.num_pes() < 2 {
        eprintln!("the number of ranks is at least two");
        exit(2);
    }
    let time = world.alloc_shared_mem_region::<f64>(1).block();
    let meter = Meter { world, block: Duration::from_millis(block_ms), time };
    transfers(&meter);
    atomics(&meter);
    flags(&meter);
    calls(&meter);
    tables(&meter, 1 << bits);
    meter.world.barrier();
    if meter.is_first() {
        println!("end");
    }
    // The world is not dropped, since the drop waits forever at the end of this program on shared memory (Lamellar
    // 0.8.1). `benches/pgas/run` removes its files of /dev/shm.
    exit(0);
}
