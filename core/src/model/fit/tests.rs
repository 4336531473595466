use super::*;
use crate::model::{LoP, LogGP, Overhead, PLogP, RoundTrip, Table};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Number of times measured for each point.
const TIMES: usize = 60;

const SIZES: [f64; 11] = [0.0, 1.0, 8.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0];

const FANS: [f64; 13] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 40.0, 52.0, 64.0];

fn cases() -> ProptestConfig {
    ProptestConfig { cases: if cfg!(miri) { 1 } else { 100 }, ..ProptestConfig::default() }
}

/// A time with noise of 1 %, and in one of 20 cases 10 times as long.
fn noisy(time: f64, random: &mut SmallRng) -> f64 {
    // The sum of 12 uniform numbers is nearly normal, with a variance of 1.
    let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
    let outlier = if random.random_ratio(1, 20) { 10.0 } else { 1.0 };
    time * (1.0 + 0.01 * normal) * outlier
}

fn measured(xs: &[f64], random: &mut SmallRng, time: impl Fn(f64) -> f64) -> Vec<Point> {
    xs.iter().map(|x| Point { x: *x, times: (0..TIMES).map(|_| noisy(time(*x), random)).collect() }).collect()
}

/// Times without noise, one for each point.
fn exact(xs: &[f64], time: impl Fn(f64) -> f64) -> Vec<Point> {
    xs.iter().map(|x| Point { x: *x, times: vec![time(*x)] }).collect()
}

fn near(found: f64, expected: f64, tolerance: f64) -> TestCaseResult {
    let off = (found - expected).abs();
    prop_assert!(off <= tolerance, "{found} for {expected}, off by {}", off / expected);
    Ok(())
}

/// Checks that two values are equal up to 5 %.
fn close(found: f64, expected: f64) -> TestCaseResult {
    near(found, expected, 0.05 * expected.abs())
}

/// Microseconds, with the same probability for each power of ten.
fn microseconds() -> impl Strategy<Value = f64> {
    between(0.05, 50.0)
}

fn between(least: f64, most: f64) -> impl Strategy<Value = f64> {
    (least.ln()..most.ln()).prop_map(f64::exp)
}

fn random() -> impl Strategy<Value = SmallRng> {
    any::<u64>().prop_map(SmallRng::seed_from_u64)
}

fn overheads() -> impl Strategy<Value = Overhead> {
    // The curves fall, or rise from at least a tenth of the asymptote.
    (microseconds(), -0.9..5.0, between(0.05, 50.0)).prop_map(|(a, b, c)| Overhead([a, b * a * (c + 1.0), c]))
}

fn round_trips() -> impl Strategy<Value = RoundTrip> {
    let saturating = (between(0.01, 1.0), between(0.05, 5.0)).prop_map(|(k, d)| (-k, d));
    let growing = (between(0.01, 0.1), between(0.001, 0.1)).prop_map(|(k, d)| (k, -d));
    let parameters = (0.0..5.0, between(0.05, 50.0), microseconds(), prop_oneof![saturating, growing], 0.0..1.0);
    parameters.prop_map(|(a, b, c, (k, d), from)| RoundTrip([a * c * (b + 1.0), b, c, d * c, k, from]))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn lines_are_recovered(constant in microseconds(), slope in between(1e-5, 1e-2), mut random in random()) {
        let fitted = line(&measured(&SIZES, &mut random, |x| constant + slope * x)).unwrap();
        close(fitted.model.constant, constant)?;
        close(fitted.model.slope, slope)?;
        prop_assert!(fitted.residual < 0.01, "{fitted:?}");
    }

    #[test]
    fn points_that_are_outliers_have_no_weight(constant in microseconds(), slope in between(1e-5, 1e-2), at in prop::array::uniform2(0..SIZES.len() - 3)) {
        let mut points = exact(&SIZES, |x| constant + slope * x);
        points[at[0]].times[0] *= 10.0;
        points[at[1]].times[0] *= 3.0;
        let fitted = line(&points).unwrap();
        close(fitted.model.constant, constant)?;
        close(fitted.model.slope, slope)?;
        for (n, point) in fitted.points.iter().enumerate() {
            prop_assert_eq!(point.weight < 0.01, at.contains(&n), "{:?}", point);
        }
    }

    #[test]
    fn log_gp_is_recovered(
        [latency, send, receive, more] in prop::array::uniform4(microseconds()),
        per_byte in between(1e-5, 1e-2),
        share in prop_oneof![Just(0.0), 0.1..1.0],
        mut random in random(),
    ) {
        let (gap, byte) = (send.max(receive) + more, share * per_byte);
        let after_first = |m: f64| (m - 1.0).max(0.0);
        let model = LogGP {
            latency, send_overhead: send, receive_overhead: receive, gap, gap_per_byte: per_byte, overhead_per_byte: byte, ..LogGP::default()
        };
        let round_trip = |m: f64| 2.0 * (send + receive + latency + 2.0 * byte * m + per_byte * after_first(m));
        let samples = Samples {
            round_trip: measured(&SIZES, &mut random, round_trip),
            per_message: measured(&SIZES, &mut random, |m| gap + per_byte * after_first(m)),
            send_overhead: measured(&SIZES, &mut random, |m| send + byte * m),
            receive_overhead: measured(&SIZES, &mut random, |m| receive + byte * m),
        };
        let fitted = log_gp(&samples).unwrap();
        let found = fitted.model;
        // L is a difference, so its error is that of the shortest round trip.
        near(found.latency, latency, (0.05 * latency).max(0.005 * round_trip(0.0)))?;
        close(found.send_overhead, send)?;
        close(found.receive_overhead, receive)?;
        close(found.gap, gap)?;
        close(found.gap_per_byte, per_byte)?;
        near(found.overhead_per_byte, byte, 0.05 * byte + 1e-8 * (send + receive))?;
        prop_assert_eq!((found.threshold, found.reduction), (model.threshold, model.reduction));
        prop_assert_eq!(fitted.points.len(), 4 * SIZES.len());
        prop_assert!(fitted.residual < 0.02, "{}", fitted.residual);
    }

    #[test]
    fn p_log_p_is_recovered(
        [latency, send, receive, more] in prop::array::uniform4(microseconds()),
        per_byte in between(1e-5, 1e-2),
        rendezvous in 4..SIZES.len(),
        mut random in random(),
    ) {
        let step = |m: f64| if m >= SIZES[rendezvous] { latency } else { 0.0 };
        let send_overhead = |m: f64| send + 0.5 * per_byte * m + step(m);
        let receive_overhead = |m: f64| receive + 0.7 * per_byte * m;
        let gap = |m: f64| send.max(receive) + more + per_byte * m + step(m);
        let samples = Samples {
            round_trip: measured(&SIZES, &mut random, |m| 2.0 * (latency + gap(m))),
            per_message: measured(&SIZES, &mut random, gap),
            send_overhead: measured(&SIZES, &mut random, send_overhead),
            receive_overhead: measured(&SIZES, &mut random, receive_overhead),
        };
        let fitted = p_log_p(&samples).unwrap();
        let PLogP { latency: found, gap: g, send_overhead: os, receive_overhead: or, .. } = &fitted.model;
        near(*found, latency, (0.05 * latency).max(0.015 * (latency + gap(0.0))))?;
        for m in SIZES {
            let bytes = m as u64;
            close(g.at(bytes), gap(m))?;
            close(os.at(bytes), send_overhead(m))?;
            close(or.at(bytes), receive_overhead(m))?;
            prop_assert!(g.at(bytes) >= os.at(bytes).max(or.at(bytes)) * (1.0 - 1e-12));
        }
        prop_assert!(fitted.residual < 0.02, "{}", fitted.residual);
    }

    #[test]
    fn lo_p_is_recovered(send in overheads(), receive in overheads(), trip in round_trips(), mut random in random()) {
        let samples = FanSamples {
            send_overhead: measured(&FANS, &mut random, |p| send.at(p)),
            receive_overhead: measured(&FANS, &mut random, |p| receive.at(p)),
            round_trip: measured(&FANS, &mut random, |p| trip.at(p)),
        };
        let fitted = lo_p(&samples).unwrap();
        let LoP { send_overhead, receive_overhead, round_trip } = fitted.model;
        for p in (1..=64).map(f64::from) {
            close(send_overhead.at(p), send.at(p))?;
            close(receive_overhead.at(p), receive.at(p))?;
            close(round_trip.at(p), trip.at(p))?;
        }
        prop_assert!(fitted.residual < 0.02, "{}", fitted.residual);
    }

    #[test]
    fn any_points_give_an_error_or_finite_times(points in points(any::<f64>(), any::<f64>()), few in points(0.0..9.0, 0.0..2.0)) {
        for points in [points, few] {
            let samples = Samples {
                round_trip: points.clone(), per_message: points.clone(), send_overhead: points.clone(), receive_overhead: points.clone(),
            };
            let fan = FanSamples { send_overhead: points.clone(), receive_overhead: points.clone(), round_trip: points.clone() };
            for fitted in [
                line(&points).map(|f| f.points), log_gp(&samples).map(|f| f.points), p_log_p(&samples).map(|f| f.points), lo_p(&fan).map(|f| f.points),
            ] {
                match fitted {
                    Ok(points) => prop_assert!(points.iter().all(|p| p.fitted.is_finite() && p.weight.is_finite()), "{:?}", points),
                    Err(error) => prop_assert_eq!((error.kind(), error.operation()), (ErrorKind::BadArgument, "fit a model")),
                }
            }
        }
    }
}

fn points(x: impl Strategy<Value = f64>, time: impl Strategy<Value = f64>) -> impl Strategy<Value = Vec<Point>> {
    let point = (x, prop::collection::vec(time, 0..4)).prop_map(|(x, times)| Point { x: x.abs().floor(), times });
    prop::collection::vec(point, 0..9)
}

#[test]
fn what_cannot_be_fitted_is_a_bad_argument() {
    let good = exact(&FANS, |x| 1.0 + x);
    let with = |x: f64, time: f64| [good.clone(), exact(&[x], |_| time)].concat();
    let wrong = [
        (vec![], "0 different abscissas"),
        (exact(&[3.0], |x| x), "1 different abscissas"),
        (exact(&[3.0; 9], |x| x), "1 different abscissas"),
        (with(f64::NAN, 1.0), "at NaN"),
        (with(f64::INFINITY, 1.0), "at inf"),
        (with(-1.0, 1.0), "at -1"),
        (with(5.0, f64::NAN), "NaN is not a valid time"),
        (with(5.0, f64::INFINITY), "inf is not a valid time"),
        (with(5.0, -0.5), "-0.5 is not a valid time"),
        (vec![Point { x: 1.0, times: vec![] }], "no measured time"),
    ];
    let samples = Samples {
        round_trip: good.clone(),
        per_message: good.clone(),
        send_overhead: good.clone(),
        receive_overhead: good.clone(),
    };
    let fan = FanSamples { send_overhead: good.clone(), receive_overhead: good.clone(), round_trip: good.clone() };
    assert!(log_gp(&samples).is_ok() && p_log_p(&samples).is_ok() && lo_p(&fan).is_ok());
    for (points, cause) in wrong {
        let fields: [fn(&mut Samples) -> &mut Vec<Point>; 4] =
            [|s| &mut s.round_trip, |s| &mut s.per_message, |s| &mut s.send_overhead, |s| &mut s.receive_overhead];
        let mut errors = vec![line(&points).unwrap_err()];
        // Receive overheads may be absent.
        for field in &fields[..if points.is_empty() { 3 } else { 4 }] {
            let mut samples = samples.clone();
            field(&mut samples).clone_from(&points);
            errors.extend([log_gp(&samples).unwrap_err(), p_log_p(&samples).unwrap_err()]);
        }
        errors.push(lo_p(&FanSamples { send_overhead: points.clone(), ..fan.clone() }).unwrap_err());
        errors.push(lo_p(&FanSamples { round_trip: points.clone(), ..fan.clone() }).unwrap_err());
        if !points.is_empty() {
            errors.push(lo_p(&FanSamples { receive_overhead: points, ..fan.clone() }).unwrap_err());
        }
        for error in errors {
            let text = error.to_string();
            assert_eq!((error.kind(), error.operation()), (ErrorKind::BadArgument, "fit a model"));
            assert!(text.contains(cause) && text.contains("; measure") || text.contains("; use"), "{cause}: {text}");
        }
    }
    let half = Samples { send_overhead: exact(&[0.5, 1.0], |x| x), ..samples };
    assert!(p_log_p(&half).unwrap_err().to_string().contains("integral numbers"));
    let none = FanSamples { send_overhead: exact(&[0.0, 1.0, 2.0], |x| 1.0 + x), ..fan };
    assert!(lo_p(&none).unwrap_err().to_string().contains("at least 1 message"));
}

#[test]
fn times_of_zero_are_fitted() {
    let zero = exact(&FANS, |_| 0.0);
    let round_trip = exact(&FANS, |p| 3.0 + 2.0 / p);
    let fan = FanSamples { send_overhead: zero.clone(), receive_overhead: vec![], round_trip: round_trip.clone() };
    let fitted = lo_p(&fan).unwrap();
    let LoP { send_overhead, receive_overhead, .. } = fitted.model;
    assert!(FANS.iter().all(|p| send_overhead.at(*p).abs() < 1e-3), "{send_overhead:?}");
    assert_eq!(receive_overhead, Overhead::default());
    assert_eq!(fitted.points.len(), 2 * FANS.len());
    let samples = Samples {
        round_trip: zero.clone(),
        per_message: zero.clone(),
        send_overhead: zero.clone(),
        receive_overhead: zero,
    };
    assert_eq!(log_gp(&samples).unwrap().model, LogGP::default());
    assert_eq!(log_gp(&samples).unwrap().residual, 0.0);
    assert_eq!(p_log_p(&samples).unwrap().model.latency, 0.0);
}

#[test]
fn gaps_are_raised_to_overheads() {
    let two = |a: f64, b: f64| vec![Point { x: 0.0, times: vec![a] }, Point { x: 100.0, times: vec![b] }];
    let receive_overhead = vec![Point { x: 50.0, times: vec![7.0] }, Point { x: 100.0, times: vec![8.0] }];
    let samples = Samples {
        round_trip: two(20.0, 30.0),
        per_message: two(2.0, 9.0),
        send_overhead: two(3.0, 4.0),
        receive_overhead,
    };
    let model = p_log_p(&samples).unwrap().model;
    assert_eq!(model.gap, Table(vec![(0, 7.0), (50, 7.0), (100, 9.0)]));
    assert_eq!(model.latency, 3.0);
}

#[test]
fn round_trips_that_are_lines_or_few_points_are_fitted() {
    for xs in [&FANS[..], &[1.0, 2.0, 4.0, 8.0, 16.0]] {
        let line = exact(xs, |p| 3.0 + 0.5 * p);
        let fan = FanSamples { send_overhead: line.clone(), receive_overhead: vec![], round_trip: line };
        let fitted = lo_p(&fan).unwrap();
        for point in &fitted.points {
            assert!((point.fitted - point.measured).abs() < 0.01 * point.measured, "{point:?}");
        }
    }
}
