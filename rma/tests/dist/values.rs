//! Values of any type to all ranks, from all, and combined.

use std::collections::BTreeMap;

use farside_rma::prelude::*;
use serde::{Deserialize, Serialize};

use super::{blamed, everywhere};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Shape {
    Point,
    Named(String, Vec<Option<f64>>),
}

#[test]
fn values_of_every_length_arrive_everywhere() {
    everywhere(&[1, 2, 3, 5], |team| {
        let me = team.rank();
        for len in [0, 1, 100, 5_000, 200_000] {
            let shape = |rank: usize| Shape::Named("ab".repeat(rank + len), vec![None, Some(rank as f64)]);
            for root in 0..team.size() {
                // What others give is ignored.
                let given = [None, Some(Shape::Point), Some(shape(root))];
                let given = given[if me == root { 2 } else { me % 2 }].clone();
                assert_eq!(team.broadcast_value(root, given)?, shape(root));
            }
            let all: Vec<_> = (0..team.size()).map(shape).collect();
            assert_eq!(team.allgather_values(&shape(me))?, all);
        }
        // Combined in the order of the ranks, and not every combination is commutative.
        let text: String = (0..team.size()).map(|rank| rank.to_string()).collect();
        assert_eq!(team.reduce_values(me.to_string(), |low, high| low + &high)?, text);
        let counts = BTreeMap::from([("all", 1), (["even", "odd"][me % 2], 1)].map(|(k, n)| (k.to_owned(), n)));
        let sums = team.reduce_values(counts, |mut low, high| {
            high.into_iter().for_each(|(key, n)| *low.entry(key).or_insert(0) += n);
            low
        })?;
        assert_eq!((sums["all"], sums["even"]), (team.size(), team.size().div_ceil(2)));
        Ok(())
    });
}

#[test]
fn value_that_is_missing_or_unreadable_is_an_error_at_every_rank() {
    /// Can be encoded only where it may.
    #[derive(Deserialize)]
    struct Refused(bool);
    impl Serialize for Refused {
        fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
            if self.0 { Err(serde::ser::Error::custom("not today")) } else { to.serialize_bool(false) }
        }
    }
    everywhere(&[1, 3], |team| {
        let (me, last) = (team.rank(), team.size() - 1);
        let missing = blamed(team.broadcast_value(last, None::<u64>));
        let unencoded = blamed(team.broadcast_value(last, Some(Refused(true))));
        let of_one = blamed(team.allgather_values(&Refused(me == last)));
        let expected = if me == last { (ErrorKind::BadArgument, None) } else { (ErrorKind::Aborted, Some(last)) };
        for outcome in [missing, unencoded, of_one] {
            assert_eq!(outcome, Some(expected));
        }
        let none = blamed(team.broadcast_value(team.size(), Some(1))).map(|(kind, _)| kind);
        assert_eq!(none, Some(ErrorKind::NoSuchRank));
        // The team is as before.
        assert_eq!(team.broadcast_value(0, Some("next".to_owned()))?, "next");
        Ok(())
    });
}
