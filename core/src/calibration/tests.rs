use std::time::Duration;

use proptest::prelude::*;

use super::*;

#[test]
fn values_round_trip_and_damaged_ones_are_refused() {
    let fitted = Fitted::new(64 << 10, [20_000, 9_000]).unwrap();
    let text = Measured { fitted, messages: 7 }.text();
    assert_eq!(Measured::parse(&text), Some(Measured { fitted, messages: 7 }));
    assert!((0..text.len()).all(|len| Measured::parse(&text[..len]).is_none()));
}

#[test]
fn values_are_bounded_by_the_device_and_outranked_by_settings() {
    let device = MessageCutOffs { most_eager: 32 << 10, read_inter: 5, ..MessageCutOffs::UNMEASURED };
    let fitted = Fitted::new(1 << 20, [1 << 20, 9_000]).unwrap();
    let applied = fitted.applied(device);
    assert_eq!(applied, MessageCutOffs { eager_intra: 32 << 10, read_intra: 9_000, ..device });
    // Messages that are not sent eagerly are read.
    let other = Fitted::new(1 << 20, [10_000, 20_000]).unwrap().applied(device);
    assert_eq!(other, MessageCutOffs { eager_intra: 10_000, read_intra: 10_000, ..device });
    let set = |n: &str| (n == "FARSIDE_TRANSFER").then(|| "eager:7".to_owned());
    let settings = Settings::from_lookup(set).unwrap();
    assert_eq!(applied.adjusted(&settings.transfer), MessageCutOffs { eager_intra: 7, eager_inter: 7, ..applied });
}

#[test]
fn every_quantity_has_a_setting_of_its_name() {
    for quantity in &QUANTITIES {
        let set = |n: &str| (n == "FARSIDE_TRANSFER").then(|| format!("{}:12345", quantity.name));
        let settings = Settings::from_lookup(set).unwrap();
        let mut cut_offs = MessageCutOffs::UNMEASURED.adjusted(&settings.transfer);
        assert_eq!(*(quantity.field)(&mut cut_offs), 12345, "{}", quantity.name);
    }
}

#[test]
fn lines_that_are_damaged_count_as_absent() {
    let fitted = Fitted::new(32 << 10, [16 << 10, 9 << 10]).unwrap();
    let good = fitted.lines();
    assert_eq!(Fitted::parse(&good), Some(fitted));
    let eager = format!("eager {}", fitted.values[0]);
    let wrong = [
        good.replace(&eager, "eager -1"),
        good.replace(&eager, "eager 99999999999999999999"),
        good.replace(&eager, &format!("eager {}", MIN_CUT_OFF - 1)),
        good.replace(&eager, &format!("eager {}", fitted.most + 1)),
        good.replace("read-intra", "read-inter"),
        format!("{good}eager 9000\n"),
    ];
    for text in wrong {
        assert!(text != good && Fitted::parse(&text).is_none(), "{text}");
    }
}

proptest! {
    #[test]
    fn any_lines_are_refused_or_within_bounds(most in any::<usize>(), values in any::<[usize; 2]>()) {
        prop_assert_eq!(Fitted::parse(&Fitted { most, values }.lines()), Fitted::new(most, values));
    }
}

/// Measures with three ranks; returns the values of each of them.
fn measured(limit: Duration, cache: impl Fn() -> Option<CacheFile> + Sync) -> Vec<Option<Measured>> {
    let settings = Settings::from_lookup(|_| None).unwrap();
    let measure = |job: &Job| {
        let before = job.message_cut_offs();
        let measured = measure::together(job, &[0, 1, 2], before.most_eager, limit, cache())?;
        assert_eq!(job.message_cut_offs(), before);
        Ok(measured)
    };
    Job::threads_with(3, &settings, measure).unwrap()
}

#[test]
fn all_ranks_get_the_values_that_two_have_measured_and_the_file_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let cache = || Some(CacheFile::of(dir.path(), "here".into()));
    for _ in 0..50 {
        let all = measured(Duration::from_secs(60), cache);
        let first = all[0].expect("a minute suffices");
        assert_eq!(all, [Some(first); 3]);
        assert!(first.messages > 0, "{first:?}");
        // Other programs, or the third rank on two processors, may load the machine.
        if let Some(kept) = cache().unwrap().read().and_then(|table| table.get(NAME, Fitted::parse)) {
            return assert_eq!(kept, first.fitted);
        }
    }
    println!("skipped: the processors are loaded");
}

#[test]
fn nothing_is_measured_without_time_or_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("file");
    std::fs::write(&folder, "").unwrap();
    assert_eq!(measured(Duration::from_secs(60), || Some(CacheFile::of(&folder, "here".into()))), [None; 3]);
    assert_eq!(measured(Duration::ZERO, || Some(CacheFile::of(dir.path(), "here".into()))), [None; 3]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
