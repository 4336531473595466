//! Fit of LogGP.

use super::robust::Linear;
use super::series::Series;
use super::{Fitted, Quantity, Samples, unfit};
use crate::error::Result;
use crate::model::LogGP;

/// Fits LogGP with an overhead per byte. No parameter is negative.
///
/// - o of both sides and O: the overheads are o + O m.
/// - g and G: a message of a stream takes g + G (m - 1). If the processor is busy for longer than that, g and G contain
///   the overhead.
/// - L: a round trip takes 2 (L + o of both sides + 2 O m + G (m - 1)), or with O m instead of 2 O m if receives take
///   no time. L is the only parameter that is a difference of times; its absolute error is that of a short round trip,
///   however small L is.
///
/// The threshold S is `None`, and the time to reduce a byte 0: the samples do not contain them.
///
/// # Errors
/// A bad argument: fewer than two sizes of a quantity, or a time or size that is not finite or negative.
pub fn log_gp(samples: &Samples) -> Result<Fitted<LogGP>> {
    let send = Series::new(Quantity::SendOverhead, &samples.send_overhead, 2)?;
    let receive = Series::new_or_none(Quantity::ReceiveOverhead, &samples.receive_overhead, 2)?;
    let stream = Series::new(Quantity::PerMessage, &samples.per_message, 2)?;
    let round_trip = Series::new(Quantity::RoundTrip, &samples.round_trip, 2)?;
    let after_first = |bytes: f64| (bytes - 1.0).max(0.0);

    let mut system = Linear::new([0.0; 3]);
    send.each(|bytes, time, scale| system.add([1.0, 0.0, bytes], time, scale));
    receive.each(|bytes, time, scale| system.add([0.0, 1.0, bytes], time, scale));
    let ([send_overhead, receive_overhead, overhead_per_byte], of_overheads) =
        system.fit().ok_or_else(|| unfit(Quantity::SendOverhead))?;

    let mut system = Linear::new([0.0; 2]);
    stream.each(|bytes, time, scale| system.add([1.0, after_first(bytes)], time, scale));
    let ([gap, gap_per_byte], of_stream) = system.fit().ok_or_else(|| unfit(Quantity::PerMessage))?;

    let sides = if receive.xs.is_empty() { 1.0 } else { 2.0 };
    let without_latency = |bytes: f64| {
        2.0 * (send_overhead + receive_overhead + sides * overhead_per_byte * bytes + gap_per_byte * after_first(bytes))
    };
    let mut system = Linear::new([0.0]);
    round_trip.each(|bytes, time, scale| system.add([2.0], time - without_latency(bytes), scale));
    let ([latency], of_round_trip) = system.fit().ok_or_else(|| unfit(Quantity::RoundTrip))?;

    let (of_send, of_receive) = of_overheads.split_at(send.xs.len());
    let points = [
        round_trip.fitted_points(&of_round_trip, |bytes| 2.0 * latency + without_latency(bytes)),
        stream.fitted_points(&of_stream, |bytes| gap + gap_per_byte * after_first(bytes)),
        send.fitted_points(of_send, |bytes| send_overhead + overhead_per_byte * bytes),
        receive.fitted_points(of_receive, |bytes| receive_overhead + overhead_per_byte * bytes),
    ];
    let model =
        LogGP { latency, send_overhead, receive_overhead, gap, gap_per_byte, overhead_per_byte, ..LogGP::default() };
    let counted = [Quantity::RoundTrip, Quantity::PerMessage, Quantity::SendOverhead, Quantity::ReceiveOverhead];
    Ok(Fitted::new(model, points.concat(), &counted))
}
