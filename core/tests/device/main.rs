//! Conformance of the devices of this crate with the contracts of `core/src/device/mod.rs`: the checks of
//! `farside-conformance`, each a test over every configuration in [`harness::configs`], with ranks as threads and as
//! processes; and tests of shared memory only.

mod harness;
mod processes;
#[path = "../../conformance/src/regions.rs"]
mod regions;
#[path = "../../conformance/src/world.rs"]
#[allow(dead_code)]
mod world;

mod asleep;
mod growth;
mod keys;
mod lent;
mod passive;
mod refused;
mod system;

use farside_conformance::Setup;

macro_rules! test_each {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            let check = farside_conformance::checks().into_iter().find(|c| c.name == stringify!($name)).unwrap();
            harness::each(concat!(module_path!(), "::", stringify!($name)), &check);
        })*
    };
}
farside_conformance::for_each_check!(test_each);
