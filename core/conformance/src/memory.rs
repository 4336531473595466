#![allow(unsafe_code)]
//! Memory that the device allocates.

use farside_core::device::Region;

use crate::regions::release;
use crate::world::World;

check! {
    fn allocated_memory_is_zeroed_and_aligned(job, setup) over 2 {
        let world = World::new(job, setup, 64)?;
        for (len, align) in [(1, 8), (1, 64), (100, 256), (8192, 64), (70_000, 4096)] {
            let made = job.device().allocate(Region { align, ..Region::allocated(len) })?;
            assert!(made.base.addr().is_multiple_of(align) && made.len >= len, "{len} bytes, {align}: {made:?}");
            // SAFETY: allocated above, and reached by no peer.
            let bytes = unsafe { std::slice::from_raw_parts_mut(made.base, len) };
            assert!(bytes.iter().all(|byte| *byte == 0), "{len} bytes, {align}");
            // A later allocation of the same memory is zeroed again.
            bytes.fill(7);
            release(job, made.handle)?;
        }
        world.barrier()
    }
}
