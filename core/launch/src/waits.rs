//! The table of ranks and the ranks that they wait for, which is printed when a job has run too long.

use std::collections::BTreeMap;

/// The answers of ranks that were asked.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    asked: usize,
    by_rank: BTreeMap<u32, String>,
}

impl Answers {
    /// No answers yet, of `asked` ranks.
    pub(crate) fn of(asked: usize) -> Self {
        Self { asked, by_rank: BTreeMap::new() }
    }

    /// Takes an answer.
    pub(crate) fn add(&mut self, rank: u32, text: String) {
        self.by_rank.insert(rank, text);
    }

    /// Whether all asked ranks have answered.
    pub(crate) fn are_complete(&self) -> bool {
        self.by_rank.len() >= self.asked
    }

    /// A line for each different answer, with all ranks that gave it; `doing` describes ranks that have not answered.
    pub(crate) fn table(&self, ranks: impl Iterator<Item = u32>, doing: impl Fn(u32) -> String) -> Vec<String> {
        let mut lines: Vec<(String, Vec<u32>)> = Vec::new();
        for rank in ranks {
            let text = self.by_rank.get(&rank).cloned().unwrap_or_else(|| doing(rank));
            match lines.iter_mut().find(|(known, _)| *known == text) {
                Some((_, ranks)) => ranks.push(rank),
                None => lines.push((text, vec![rank])),
            }
        }
        lines.into_iter().map(|(text, ranks)| format!("{}: {text}", names(&ranks))).collect()
    }
}

/// Ranks in ascending order, as in "ranks 0, 2-5".
fn names(ranks: &[u32]) -> String {
    let runs = ranks.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    let plural = if ranks.len() == 1 { "" } else { "s" };
    format!("rank{plural} {}", runs.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_the_same_answer_share_a_line() {
        let mut answers = Answers::of(4);
        for rank in [0, 2, 3] {
            answers.add(rank, "fence waits for rank 1".into());
        }
        assert!(!answers.are_complete());
        answers.add(5, "fence waits for rank 0".into());
        assert!(answers.are_complete());
        let lines = answers.table(0..6, |rank| format!("computes {}", rank / 4));
        let wanted = [
            "ranks 0, 2-3: fence waits for rank 1",
            "rank 1: computes 0",
            "rank 4: computes 1",
            "rank 5: fence waits for rank 0",
        ];
        assert_eq!(lines, wanted);
    }
}
