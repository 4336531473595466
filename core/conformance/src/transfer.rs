//! Writes and reads: every length, every alignment, block lists, ragged edges, the order of writes.

use farside_core::Result;

use crate::world::{RAGGED, World, pattern};

const PAGE: usize = 4096;

/// Writes to the next rank and to a model array, and compares the whole region with the model at the end.
struct Model<'a, 'b> {
    world: &'b World<'a>,
    to: usize,
    bytes: Vec<u8>,
}

impl<'a, 'b> Model<'a, 'b> {
    fn new(world: &'b World<'a>) -> Self {
        Self { world, to: (world.me() + 1) % world.team.size(), bytes: vec![0; world.own.len] }
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.world.write(self.to, offset, bytes)?;
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        let around = offset.saturating_sub(9)..(offset + bytes.len() + 9).min(self.bytes.len());
        let got = self.world.read(self.to, around.start, around.len())?;
        assert!(got == self.bytes[around], "{} bytes at {offset}", bytes.len());
        Ok(())
    }

    /// All ranks write the same, so the own region must look like the model of the neighbour's.
    fn finish(self) -> Result<()> {
        self.world.barrier()?;
        assert!(self.world.own_bytes() == self.bytes, "the region as its owner sees it");
        assert!(self.world.read(self.to, 0, self.bytes.len())? == self.bytes, "the region as a peer sees it");
        self.world.barrier()
    }
}

check! {
    fn write_read_every_length_to_200(job, setup) over 2 {
        let world = World::new(job, setup, 3 * PAGE)?;
        let mut model = Model::new(&world);
        for len in 0..=200 {
            // Across the ragged start, within pages, and across the ragged end, at all alignments in turn.
            for offset in [len % 16, RAGGED - 1 - len % 20, 2 * PAGE + len % 64, 3 * PAGE - len] {
                model.write(offset, &pattern(len + offset, len))?;
            }
        }
        model.finish()
    }
}

check! {
    fn write_read_of_words_at_every_alignment(job, setup) over 2 {
        let world = World::new(job, setup, 2 * PAGE)?;
        let mut model = Model::new(&world);
        for start in [0, RAGGED - 16, RAGGED + PAGE - 16] {
            for offset in start..start + 32 {
                for len in [1, 2, 4, 8, 16] {
                    model.write(offset, &pattern(offset * len, len))?;
                }
            }
        }
        model.finish()
    }
}

check! {
    fn write_read_of_long_messages(job, setup) over 2 {
        let world = World::new(job, setup, 4 << 20)?;
        let mut model = Model::new(&world);
        for (i, len) in [4 << 10, (16 << 10) - 1, 16 << 10, (64 << 10) + 1, (setup.rounds(3, 1) as usize) << 20].into_iter().enumerate() {
            let offsets = [0, RAGGED + 5, 3];
            for offset in &offsets[..setup.rounds(3, 2) as usize] {
                model.write(*offset, &pattern(i + offset, len))?;
            }
        }
        model.finish()
    }
}

check! {
    fn write_read_with_block_lists(job, setup) over 2 {
        let world = World::new(job, setup, 300 << 10)?;
        let to = 1 - world.me();
        let most = job.device().capabilities().max_blocks;
        for (seed, count) in [1, 2, 7, 64, most].into_iter().enumerate() {
            // Blocks of 0 to 255 bytes, apart from one another and at all alignments.
            let source = pattern(seed, count * 300);
            let lens: Vec<usize> = (0..count).map(|i| (i * 37 + seed) % 256).collect();
            let parts: Vec<&[u8]> = lens.iter().enumerate().map(|(i, l)| &source[i * 300 + i % 9..][..*l]).collect();
            let want = parts.concat();
            let offset = RAGGED / 2 + seed;
            world.gather(to, offset, &parts)?;
            assert!(world.read(to, offset, want.len())? == want, "gather of {count} blocks");
            let mut backwards = lens.clone();
            backwards.reverse();
            assert!(world.scatter(to, offset, &backwards)?.concat() == want, "scatter of {count} blocks");
        }
        world.barrier()
    }
}

check! {
    fn write_read_with_lists_on_both_sides(job, setup) over 2 {
        use farside_core::ErrorKind;
        use farside_core::device::{Block, Operation, Range};
        const LEN: usize = 300 << 10;
        let world = World::new(job, setup, LEN)?;
        let to = 1 - world.me();
        let region = world.remotes[to].handle;
        let most = job.device().capabilities().max_blocks;
        if world.remotes[to].lists.is_none() {
            let blocks = [Block::of(std::ptr::null(), 0)];
            let e = world.complete(to, Operation::write_list(&blocks, region, &[])).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Unsupported, "{e}");
            return world.barrier();
        }
        let mut model = vec![0u8; LEN];
        for (seed, count) in [0, 1, 3, 64, most, 2 * most + 1].into_iter().enumerate() {
            // Ranges of 0 to 100 bytes from the ragged start on, descending for odd seeds; blocks of 7 bytes, and a
            // last block with the remaining bytes.
            let mut ranges: Vec<Range> =
                (0..count).map(|i| Range { offset: seed + i * 110, len: (i * 37 + seed) % 101 }).collect();
            if seed % 2 == 1 {
                ranges.reverse();
            }
            let len = ranges.iter().map(|r| r.len).sum();
            let source = pattern(seed, len);
            let blocks: Vec<Block> = source.chunks(7).map(|c| Block::of(c.as_ptr(), c.len())).collect();
            world.complete(to, Operation::write_list(&blocks, region, &ranges))?;
            let mut at = 0;
            for r in &ranges {
                model[r.offset..r.offset + r.len].copy_from_slice(&source[at..at + r.len]);
                at += r.len;
            }
            assert!(world.read(to, 0, LEN)? == model, "write of {count} ranges");
            let mut back = vec![0u8; len];
            let into: Vec<Block> =
                back.chunks_mut(13).map(|c| Block { base: c.as_mut_ptr(), len: c.len() }).collect();
            world.complete(to, Operation::read_list(&into, region, &ranges))?;
            assert!(back == source, "read of {count} ranges");
        }
        world.barrier()?;
        assert!(world.own_bytes() == model, "the region as its owner sees it");
        let bytes = [1u8; 8];
        let blocks = [Block::of(bytes.as_ptr(), 8)];
        for (ranges, kind) in [
            ([Range { offset: 0, len: 4 }, Range { offset: 8, len: 3 }], ErrorKind::BadArgument),
            ([Range { offset: 0, len: 4 }, Range { offset: 8, len: 5 }], ErrorKind::BadArgument),
            ([Range { offset: 0, len: 4 }, Range { offset: LEN - 3, len: 4 }], ErrorKind::OutOfRange),
            ([Range { offset: usize::MAX, len: 4 }, Range { offset: 0, len: 4 }], ErrorKind::OutOfRange),
            ([Range { offset: 0, len: 8 }, Range { offset: 0, len: usize::MAX }], ErrorKind::OutOfRange),
        ] {
            let e = world.complete(to, Operation::write_list(&blocks, region, &ranges)).unwrap_err();
            assert_eq!((e.kind(), e.blamed()), (kind, Some(to)), "{e}");
        }
        world.barrier()?;
        assert!(world.own_bytes() == model, "a refused write changed memory");
        world.barrier()
    }
}

check! {
    fn write_read_own_memory(job, setup) over 1 {
        let world = World::new(job, setup, 3 * PAGE)?;
        let mut model = Model::new(&world);
        for offset in [0, 1, RAGGED - 3, 2 * PAGE] {
            model.write(offset, &pattern(offset, 150))?;
        }
        model.finish()
    }
}

check! {
    fn write_read_by_all_to_all(job, setup) over 4 {
        let world = World::new(job, setup, 4 * 5000)?;
        let mine = |to: usize, from: usize| pattern(to * 10 + from, 5000);
        for to in 0..4 {
            world.write(to, world.me() * 5000, &mine(to, world.me()))?;
        }
        world.barrier()?;
        for (from, bytes) in world.own_bytes().chunks(5000).enumerate() {
            assert!(bytes == mine(world.me(), from), "from rank {from}");
        }
        world.barrier()
    }
}

check! {
    fn writes_to_the_same_bytes_keep_their_order(job, setup) over 2 {
        use farside_core::device::{Block, Operation};
        use farside_core::job::Track;
        if !job.device().capabilities().mapped {
            return setup.skip("no mapped memory, so writes need not be ordered");
        }
        let world = World::new(job, setup, 300 << 10)?;
        if world.me() == 0 {
            let track = Track::new();
            // A long write precedes a short one, which must not overtake requests that wait for buffers.
            let writes: Vec<Vec<u8>> = [280 << 10, 8, 200 << 10, 16, 40 << 10, 1, 20, 20 << 10, 24]
                .into_iter()
                .enumerate()
                .map(|(i, len)| vec![i as u8 + 1; len])
                .collect();
            let mut model = vec![0u8; 300 << 10];
            for round in 0..20 {
                for bytes in &writes {
                    let from = [Block::of(bytes.as_ptr(), bytes.len())];
                    let to = world.place(1, RAGGED - 8 + round);
                    post(&world, Operation::write(&from, to), &track)?;
                    model[RAGGED - 8 + round..][..bytes.len()].copy_from_slice(bytes);
                }
                job.wait("writes", || Ok((track.open() == 0).then_some(())))?;
                track.check()?;
                assert!(world.read(1, 0, model.len())? == model, "round {round}");
            }
        }
        world.barrier()
    }
}

#[allow(unsafe_code)]
fn post(
    world: &World<'_>,
    operation: farside_core::device::Operation<'_>,
    track: &std::rc::Rc<farside_core::job::Track>,
) -> Result<()> {
    // SAFETY: the caller waits for `track` while the buffers live.
    unsafe { world.job.post(1, operation, None, &[track]) }.map(|_| ())
}
