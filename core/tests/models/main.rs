//! Models of the protocols between ranks, run through every interleaving and every reordering that the memory
//! model allows (`loom`), up to a bound on preemptions.
//!
//! Each states anew, with the same orderings, what a module does, and has variants that
//! lack one thing; the model must notice each of them.

mod bias;
mod line;

/// Runs a model with at most `preemptions` involuntary switches of threads.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// State of one run. Leaked: a model that ends by a panic must not drop what loom then no longer tracks.
fn leak<T>(state: T) -> &'static T {
    Box::leak(Box::new(state))
}
