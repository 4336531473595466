//! Faults of the device that are planted, each of which a seed finds.

use super::scenario::Scenario;
use super::shrink;

/// Seeds among which one finds a fault.
const SEEDS: u64 = 1000;

/// The scenario of a seed, with a damage of `FARSIDE_TEST_FAULT` to one operation of each rank.
fn planted(damage: &str, seed: u64) -> Scenario {
    let number = 1 + seed % 6;
    Scenario { damage: Some(format!("{damage}:{number}")), hard: None, ..Scenario::draw(seed) }
}

/// Looks for a seed that fails with the damage, and does not fail without it, nor where the damage is harmless. It fails
/// again in the same way, to the letter. The search begins with the seed `first`, which is known to find it, or with 0 where
/// `FARSIDE_TEST_SEEDS` is set.
fn is_found(damage: &str, first: u64, harmless: impl Fn(Scenario) -> Option<Scenario>) {
    let first = if super::number("FARSIDE_TEST_SEEDS").is_some() { 0 } else { first };
    let found = (first..SEEDS).find_map(|seed| {
        let scenario = planted(damage, seed);
        let outcome = scenario.run();
        let fails = outcome.failure.is_some();
        let not_elsewhere = || harmless(scenario.clone()).is_none_or(|harmless| harmless.run().failure.is_none());
        (fails && not_elsewhere()).then(|| (scenario.clone(), outcome))
    });
    let (scenario, outcome) = found.unwrap_or_else(|| panic!("{damage} is not found by {SEEDS} seeds"));
    let sound = Scenario { damage: None, ..scenario.clone() }.run();
    assert!(sound.failure.is_none(), "without {damage}: {}", shrink::report(&scenario, sound, 0));
    let texts = [outcome, scenario.run()].map(|outcome| shrink::report(&scenario, outcome, 5));
    assert_eq!(texts[0], texts[1]);
    println!("{damage} is found by seed {}:\n{}", scenario.seed, texts[0]);
}

#[test]
fn lost_notification() {
    is_found("drop-signal", 0, |_| None);
}

#[test]
fn notification_before_its_data() {
    is_found("early-notify", 0, |_| None);
}

/// Where atomics of the interface are not coherent with the processor's, a rank's own ones pass through the interface too.
#[test]
fn atomic_beside_the_interface() {
    is_found("own-atomic", 314, |scenario| Some(Scenario { incoherent: false, ..scenario }));
}

#[test]
fn credit_that_is_not_given_back() {
    is_found("keep-credit", 1, |_| None);
}

#[test]
fn message_of_another_tag() {
    is_found("wrong-tag", 0, |_| None);
}
