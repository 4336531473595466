//! Injected device faults, each of which some seed detects.

use std::collections::BTreeSet;

use farside_rma::core::settings;

use super::scenario::Scenario;
use super::shrink;

/// Number of seeds of which at least one must detect a fault.
const SEEDS: u64 = 1000;

/// The scenario of a seed, with a damage of `FARSIDE_TEST_FAULT` to one operation of each rank.
fn planted(damage: &str, seed: u64) -> Scenario {
    let number = 1 + seed % 6;
    Scenario { damage: Some(format!("{damage}:{number}")), hard: None, ..Scenario::draw(seed) }
}

/// Searches for a seed that fails with the damage, and fails neither without it nor where the damage is harmless. The
/// seed must fail again with exactly the same report. Seeds for which `shows` returns false, where the damage is not
/// observable, are skipped.
fn is_found(damage: &str, shows: impl Fn(&Scenario) -> bool, harmless: impl Fn(Scenario) -> Option<Scenario>) {
    let found = (0..SEEDS).map(|seed| planted(damage, seed)).filter(shows).find_map(|scenario| {
        let outcome = scenario.run();
        let fails = outcome.failure.is_some();
        let not_elsewhere = || harmless(scenario.clone()).is_none_or(|harmless| harmless.run().failure.is_none());
        (fails && not_elsewhere()).then(|| (scenario.clone(), outcome))
    });
    let (scenario, outcome) = found.unwrap_or_else(|| panic!("{damage} is not detected by {SEEDS} seeds"));
    let sound = Scenario { damage: None, ..scenario.clone() }.run();
    assert!(sound.failure.is_none(), "without {damage}: {}", shrink::report(&scenario, sound, 0));
    let texts = [outcome, scenario.run()].map(|outcome| shrink::report(&scenario, outcome, 5));
    assert_eq!(texts[0], texts[1]);
    println!("{damage} is detected by seed {}:\n{}", scenario.seed, texts[0]);
}

/// Tests of damages that are observable on every network.
macro_rules! found {
    ($($name:ident: $damage:literal,)*) => {
        $(#[test]
        fn $name() {
            is_found($damage, |_| true, |_| None);
        })*

        /// Every damage of `FARSIDE_TEST_FAULT` has a test here.
        #[test]
        fn every_damage_is_planted() {
            let here = [$($damage,)* OWN_ATOMIC];
            let setting = settings::TABLE.iter().find(|setting| setting.name == "FARSIDE_TEST_FAULT").unwrap();
            let damages = setting.values.split([' ', ',']).filter_map(|word| word.strip_suffix(":N"));
            let all: BTreeSet<&str> = damages.collect();
            assert_eq!(here.into_iter().collect::<BTreeSet<_>>(), all);
            assert_eq!(all.len(), 10);
        }
    };
}

found! {
    lost_put: "drop-put",
    lost_get: "drop-get",
    lost_message: "drop-message",
    lost_notification: "drop-signal",
    lost_atomic: "lose-atomic",
    put_that_comes_twice: "double-put",
    notification_before_its_data: "early-notify",
    message_of_another_tag: "wrong-tag",
    credit_that_is_not_given_back: "keep-credit",
}

const OWN_ATOMIC: &str = "own-atomic";

/// If the interface's atomics are not coherent with CPU atomics, a rank's atomics on its own memory also use the
/// interface.
#[test]
fn atomic_beside_the_interface() {
    let coherent = |scenario| Some(Scenario { incoherent: false, ..scenario });
    is_found(OWN_ATOMIC, |scenario| scenario.incoherent, coherent);
}
