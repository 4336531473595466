//! Models that are measured on a simulated network equal those with which it was configured.

use std::time::Duration;

use farside_core::ErrorKind;
#[cfg(feature = "tune")]
use farside_core::model::Posting;
use farside_core::model::{LogGP, Models, Primitive};
use farside_core::sim::{Interface, Network, Simulation};

/// Interfaces whose gap is at least the overhead, since a stream shows the longer one.
fn interfaces() -> [Interface; 4] {
    let slow = Interface {
        latency: 25_000.0,
        send_overhead: 1500.0,
        receive_overhead: 2500.0,
        gap: 4000.0,
        gap_per_byte: 8.0,
        ..Interface::default()
    };
    let busy = Interface {
        latency: 1800.0,
        send_overhead: 250.0,
        receive_overhead: 400.0,
        gap: 600.0,
        gap_per_byte: 0.4,
        overhead_per_byte: 0.1,
        gap_per_block: 0.0,
    };
    let fast = Interface { gap_per_byte: 0.02, ..Interface::log_p(350.0, 60.0, 90.0) };
    [Interface::default(), slow, busy, fast]
}

fn measured(ranks: usize, network: Network, limit: Duration) -> Vec<Models> {
    let all: Vec<u32> = (0..ranks as u32).collect();
    let run = Simulation::new(ranks).network(network).run(|job| Models::measure(job, &all, limit)).unwrap();
    run.results
}

#[test]
fn parameters_of_a_simulated_network_are_recovered() {
    for interface in interfaces() {
        let network = Network { interface, ..Network::default() };
        let all = measured(2, network, Duration::from_millis(100));
        assert_eq!(all[1].to_bytes(), all[0].to_bytes());
        let given = LogGP::from(interface);
        for primitive in Primitive::ALL {
            let fits = all[0].of(primitive).unwrap();
            let found = fits.log_gp.model;
            // A write takes no processor time.
            let receive = if primitive == Primitive::Messages { given.receive_overhead } else { 0.0 };
            for (name, found, given) in [
                ("L", found.latency, given.latency),
                ("o_s", found.send_overhead, given.send_overhead),
                ("o_r", found.receive_overhead, receive),
                ("g", found.gap, given.gap),
                ("G", found.gap_per_byte, given.gap_per_byte),
            ] {
                println!("{primitive:?} {name}: {found:.4} for {given}");
                assert!(
                    (found - given).abs() <= 0.05 * given,
                    "{primitive:?} {name}: {found} for {given}, {interface:?}"
                );
            }
            if primitive == Primitive::Messages {
                let (found, given) = (found.overhead_per_byte, given.overhead_per_byte);
                assert!((found - given).abs() <= 0.05 * given + 1e-9, "O: {found} for {given}");
            }
            println!("residuals {} {}", fits.log_gp.residual, fits.p_log_p.residual);
            assert!(fits.log_gp.residual < 0.01, "{}", fits.log_gp.residual);
        }
    }
}

#[test]
#[cfg(feature = "tune")]
fn lo_p_of_a_simulated_network_fits_what_was_measured() {
    let models = &measured(17, Network::default(), Duration::from_millis(200))[0];
    for primitive in Primitive::ALL {
        for posting in [Posting::Normal, Posting::Inline] {
            let lo_p = models.lo_p(primitive, posting).unwrap();
            // The processor is busy for o for each message, whatever their number.
            let o = Interface::default().send_overhead;
            assert!((1..=16).all(|p| (lo_p.send_overhead.at(p.into()) - o).abs() < 0.05 * o), "{lo_p:?}");
        }
        for (posting, fitted) in &models.of(primitive).unwrap().lo_p {
            println!("{primitive:?} {posting:?}: {:.4} {:?}", fitted.residual, fitted.model);
            assert!(fitted.residual < 0.05, "{primitive:?} {posting:?}: {}", fitted.residual);
        }
    }
    assert!(models.lo_p(Primitive::Writes, Posting::List).is_none(), "the device has no lists");
}

#[test]
fn times_of_transfers_are_those_of_the_network_and_their_cut_offs_follow() {
    let measured = |interface: Interface| {
        let network = Network { interface, ..Network::default() };
        measured(2, network, Duration::from_millis(20)).swap_remove(0)
    };
    let by_block = Interface { gap_per_block: 30.0, ..Interface::default() };
    let models = measured(by_block);
    assert_eq!(models.transfer_times().len(), 5);
    for times in models.transfer_times() {
        let Interface { latency, send_overhead: o, gap, gap_per_byte, gap_per_block, .. } = by_block;
        let bytes = |n: usize| (n * times.block - 1) as f64 * gap_per_byte;
        let gathered = o + latency + bytes(16) + 15.0 * gap_per_block;
        let writes = o + 15.0 * (gap + bytes(1)) + latency + bytes(1);
        for (name, found, given) in [("gathered", times.gathered, gathered), ("writes", times.writes, writes)] {
            assert!((found - given).abs() <= 0.05 * given, "{name} {found} for {given}, {times:?}");
        }
        assert!(times.packed > gathered && times.lists > times.gathered, "{times:?}");
    }
    // Copies take no virtual time, so packing costs packets only: less than a gap for each short block.
    let found = models.transfers().unwrap().cut_offs;
    assert!(found.gather_block > 32 && found.multi_w_block > 32, "{found:?}");
    let slow = measured(Interface { gap_per_block: 4000.0, ..Interface::default() });
    let found = slow.transfers().unwrap().cut_offs;
    assert_eq!((found.gather_block, found.sgrs_block, found.sgrs_bytes), (u64::MAX, u64::MAX, u64::MAX));
    assert!(slow.cut_offs().unwrap().starts_with(&format!("gather-block:{}", u64::MAX)));
}

#[test]
fn what_cannot_be_measured_is_an_error_at_every_rank() {
    let kinds = |ranks: usize, of: &[u32], limit: Duration| {
        let run = Simulation::new(ranks).run(|job| Ok(Models::measure(job, of, limit).unwrap_err().kind()));
        run.unwrap().results
    };
    assert_eq!(kinds(1, &[0], Duration::from_secs(1)), [ErrorKind::BadArgument]);
    assert_eq!(kinds(2, &[0, 7], Duration::from_secs(1)), [ErrorKind::NoSuchRank; 2]);
    assert_eq!(kinds(3, &[1, 0, 2], Duration::ZERO), [ErrorKind::Aborted, ErrorKind::Timeout, ErrorKind::Aborted]);
}
