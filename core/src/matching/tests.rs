//! Comparison with plain lists that are searched from the front.

use proptest::prelude::*;

use super::*;

#[derive(Default)]
struct Model {
    posted: Vec<(Ticket, Pattern, u32)>,
    unexpected: Vec<(Ticket, Envelope, u32)>,
}

#[derive(Clone, Debug)]
enum Step {
    Arrive(Envelope),
    Receive(Pattern),
    Probe(Pattern),
    Cancel(usize),
    TakeNamed(usize),
    Drain(u32),
}

fn envelopes() -> impl Strategy<Value = Envelope> {
    (0..2u32, 0..3u32, 0..3i32).prop_map(|(context, source, tag)| Envelope { context, source, tag })
}

fn patterns() -> impl Strategy<Value = Pattern> {
    (0..2u32, proptest::option::of(0..3u32), proptest::option::of(0..3i32))
        .prop_map(|(context, source, tag)| Pattern::new(context, source, tag))
}

/// Whether a pattern matches a message.
fn fits(p: &Pattern, e: &Envelope) -> bool {
    let (source, tag) = (p.source(), p.tag());
    p.context() == e.context && source.is_none_or(|s| s == e.source) && tag.is_none_or(|t| t == e.tag)
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => envelopes().prop_map(Step::Arrive),
        8 => patterns().prop_map(Step::Receive),
        2 => patterns().prop_map(Step::Probe),
        1 => (0..8usize).prop_map(Step::Cancel),
        1 => (0..8usize).prop_map(Step::TakeNamed),
        1 => (0..20u32).prop_map(Step::Drain),
    ]
}

proptest! {
    #[test]
    fn matches_what_a_search_from_the_front_finds(steps in prop::collection::vec(steps(), 0..200)) {
        let (mut m, mut model) = (Matching::<u32, u32>::default(), Model::default());
        for (value, step) in steps.into_iter().enumerate() {
            let value = value as u32;
            match step {
                Step::Arrive(e) => {
                    let want = model.posted.iter().position(|(_, p, _)| fits(p, &e)).map(|i| model.posted.remove(i));
                    let got = m.take_posted(&e);
                    prop_assert_eq!(got, want.map(|(.., r)| r));
                    if got.is_none() {
                        model.unexpected.push((m.keep(e, value), e, value));
                    }
                }
                Step::Receive(p) => {
                    let want = model.unexpected.iter().position(|(_, e, _)| fits(&p, e)).map(|i| model.unexpected.remove(i));
                    let got = m.take_unexpected(&p);
                    prop_assert_eq!(got, want.map(|(_, e, v)| (e, v)));
                    if got.is_none() {
                        model.posted.push((m.post(p, value), p, value));
                    }
                }
                Step::Probe(p) => {
                    let want = model.unexpected.iter().find(|(_, e, _)| fits(&p, e)).copied();
                    prop_assert_eq!(m.probe(&p).map(|(t, e, v)| (t, e, *v)), want);
                }
                Step::Cancel(i) if i < model.posted.len() => {
                    let (ticket, _, value) = model.posted.remove(i);
                    prop_assert_eq!(m.cancel(ticket), Some(value));
                    prop_assert_eq!(m.cancel(ticket), None);
                }
                Step::TakeNamed(i) if i < model.unexpected.len() => {
                    let (ticket, e, value) = model.unexpected.remove(i);
                    prop_assert_eq!(m.take(ticket), Some((e, value)));
                    prop_assert_eq!(m.take(ticket), None);
                }
                Step::Drain(context) if context < 2 => {
                    let (mut receives, mut messages) = m.drain(context);
                    receives.sort_unstable();
                    messages.sort_unstable_by_key(|(_, v)| *v);
                    let want: Vec<u32> =
                        model.posted.iter().filter(|(_, p, _)| p.context() == context).map(|(.., v)| *v).collect();
                    prop_assert_eq!(receives, want);
                    let want: Vec<(Envelope, u32)> =
                        model.unexpected.iter().filter(|(_, e, _)| e.context == context).map(|(_, e, v)| (*e, *v)).collect();
                    prop_assert_eq!(messages, want);
                    model.posted.retain(|(_, p, _)| p.context() != context);
                    model.unexpected.retain(|(_, e, _)| e.context != context);
                }
                _ => {}
            }
            prop_assert_eq!((m.posted(), m.unexpected()), (model.posted.len(), model.unexpected.len()));
        }
    }
}

#[test]
fn nothing_grows_once_all_is_matched() {
    let mut m = Matching::<u32, u32>::default();
    for tag in 0..100_000 {
        let pattern = Pattern::new(0, Some(1), Some(tag));
        m.post(pattern, 0);
        assert!(m.take_posted(&Envelope { context: 0, source: 1, tag }).is_some());
        m.keep(Envelope { context: 0, source: 1, tag }, 0);
        assert!(m.take_unexpected(&pattern).is_some());
    }
    assert_eq!((m.posted.slots.len(), m.unexpected.slots.len()), (1, 1));
}
