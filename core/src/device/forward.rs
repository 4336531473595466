#![allow(unsafe_code)]
//! Devices that wrap another device.

/// Implements the named methods of a wrapper by calling the inner device.
macro_rules! forward {
    ($inner:ident: $($method:ident),*) => { $(crate::device::forward!(@$method $inner);)* };
    (@capabilities $i:ident) => { fn capabilities(&self) -> &Capabilities { self.$i.capabilities() } };
    (@register $i:ident) => {
        unsafe fn register(&self, region: Region) -> Result<Registration> {
            // SAFETY: the same contract.
            unsafe { self.$i.register(region) }
        }
    };
    (@release $i:ident) => {
        unsafe fn release(&self, handle: u64) -> Result<()> {
            // SAFETY: the same contract.
            unsafe { self.$i.release(handle) }
        }
    };
    (@import $i:ident) => {
        fn import(&self, peer: u32, key: &[u8], accumulate: Option<AccumulateFn>) -> Result<RemoteRegion> {
            self.$i.import(peer, key, accumulate)
        }
    };
    (@forget $i:ident) => {
        unsafe fn forget(&self, handle: u64) {
            // SAFETY: the same contract.
            unsafe { self.$i.forget(handle) };
        }
    };
    (@sealed $i:ident) => { fn sealed(&self, handle: u64) { self.$i.sealed(handle); } };
    (@peers_can_map $i:ident) => {
        unsafe fn peers_can_map(&self, memory: Block) -> bool {
            // SAFETY: the same contract.
            unsafe { self.$i.peers_can_map(memory) }
        }
    };
    (@wake $i:ident) => { fn wake(&self, peer: u32) { self.$i.wake(peer); } };
    (@waker $i:ident) => { fn waker(&self) -> Result<Waker> { self.$i.waker() } };
    (@now $i:ident) => { fn now(&self) -> Instant { self.$i.now() } };
    (@compute $i:ident) => { fn compute(&self, time: std::time::Duration) { self.$i.compute(time); } };
    (@stats $i:ident) => {
        fn stats<'a>(&'a self, each: &mut dyn FnMut(&'static str, &'a Stats)) { self.$i.stats(each); }
    };
    (@check_peers $i:ident) => {
        fn check_peers(&self, about: crate::device::PeerCheck<'_>) -> Result<Option<u32>> { self.$i.check_peers(about) }
    };
    (@leave $i:ident) => { fn leave(&self, how: Leave) -> Result<bool> { self.$i.leave(how) } };
    (@cancel $i:ident) => { fn cancel(&self, which: &dyn Fn(u64) -> bool) { self.$i.cancel(which); } };
}
pub(crate) use forward;
