//! The launcher's side of PMI-1 as a state machine from lines to lines. Lines of ranks are not trusted.

use std::collections::HashMap;

use farside_core::bootstrap::JOB_PREFIX;
use farside_core::bootstrap::pmi1::{ASK, HELLO, LOST_FIELD, WAITS};
use farside_core::bootstrap::pmi1_wire::{Line, Message, quote};

/// The limits that ranks are given, in characters including the terminating zero of a C string; the same as Hydra's.
const NAME_MAX: usize = 256;
const KEY_MAX: usize = 64;
const VALUE_MAX: usize = 1024;
/// Maximum number of characters of keys and values that one rank may store: many times more than a rank of any MPI
/// publishes.
const RANK_STORE_MAX: usize = 4 << 20;
/// Maximum number of characters that one job may store.
const STORE_MAX: usize = 256 << 20;

/// Lines for ranks, each with its newline.
pub(crate) type Replies = Vec<(u32, String)>;

/// The outcome of a line of a rank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server sends these replies, to the rank that sent the line and perhaps to others.
    Replies(Replies),
    /// The job must end.
    Abort {
        /// The requested exit code.
        code: i32,
        /// The reason that the rank gave, or empty.
        reason: String,
    },
    /// The rank was asked what it waits for, and answers.
    Waits(String),
    /// The rank broke the protocol, in this way.
    Broken(String),
}

/// The state of a rank in the protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Before `init`.
    #[default]
    New,
    Ready,
    /// Inside a barrier.
    Waiting,
    Finalized,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    state: State,
    /// Inside a request of several lines, which is refused as a whole.
    in_block: bool,
    /// Characters of keys and values that it has stored.
    stored: usize,
    /// Whether the rank runs Farside's runtime, which answers questions.
    answers: bool,
}

/// The state of a job.
pub(crate) struct Server {
    name: String,
    ranks: Vec<Rank>,
    /// The number of each rank's program.
    programs: Vec<u32>,
    /// Values by key, each with the rank that put it.
    values: HashMap<String, (u32, String)>,
    stored: usize,
    /// The first rank that ended without a farewell, and how; later ones may have ended because of it.
    lost: Option<(u32, String)>,
}

impl Server {
    /// A job on this machine, with one rank for each entry of `programs`, and a unique name of 128 random bits.
    pub(crate) fn new(programs: Vec<u32>) -> Self {
        Self::named(format!("{JOB_PREFIX}{:032x}", rand::random::<u128>()), programs)
    }

    fn named(name: String, programs: Vec<u32>) -> Self {
        let size = programs.len();
        // MPICH reads this to find out which ranks share a node: from node 0 on, 1 node with `size` ranks.
        let mapping = format!("(vector,(0,1,{size}))");
        Self {
            name,
            ranks: vec![Rank::default(); size],
            programs,
            values: HashMap::from([("PMI_process_mapping".to_owned(), (0, mapping))]),
            stored: 0,
            lost: None,
        }
    }

    /// The number of ranks.
    pub(crate) fn size(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Whether the rank has joined the job and not finalized.
    pub(crate) fn is_unfinished(&self, rank: u32) -> bool {
        matches!(self.ranks[rank as usize].state, State::Ready | State::Waiting)
    }

    /// The query what ranks wait for, addressed to all ranks that support it.
    pub(crate) fn questions(&self) -> Replies {
        let asked = (0u32..).zip(&self.ranks).filter(|(_, rank)| rank.answers && rank.state == State::Ready);
        asked.map(|(rank, _)| (rank, Line::new(ASK).end())).collect()
    }

    /// The state of a rank that has not answered, in words.
    pub(crate) fn doing(&self, rank: u32) -> &'static str {
        let rank = &self.ranks[rank as usize];
        match rank.state {
            State::New => "has not joined the job",
            State::Waiting => "start-up waits for ranks that have not joined the job",
            State::Finalized => "has finalized",
            State::Ready if rank.answers => "waits for no rank: it computes, polls or is stopped",
            State::Ready => "cannot be asked: it does not run Farside",
        }
    }

    /// Serves one line, without its newline.
    pub(crate) fn line(&mut self, rank: u32, line: &[u8]) -> Answer {
        let me = &mut self.ranks[rank as usize];
        if me.in_block || line.starts_with(b"mcmd=") {
            me.in_block = line != b"endcmd";
            let refusal = Line::new("spawn_result").field("rc", -1).field("msg", "not_supported").end();
            return Answer::Replies(if me.in_block { Vec::new() } else { vec![(rank, refusal)] });
        }
        let message = match Message::parse(line) {
            Ok(message) => message,
            Err(what) => return Answer::Broken(what),
        };
        self.serve(rank, &message).unwrap_or_else(Answer::Broken)
    }

    /// Handles the end of a rank or of its connection: ranks that wait for it are notified with `why`.
    pub(crate) fn gone(&mut self, rank: u32, why: &str) -> Replies {
        let me = &mut self.ranks[rank as usize];
        if me.state == State::Waiting {
            me.state = State::Ready;
        }
        if me.state != State::Finalized {
            self.lost.get_or_insert_with(|| (rank, why.to_owned()));
        }
        self.settle_barrier()
    }

    fn serve(&mut self, rank: u32, message: &Message) -> Result<Answer, String> {
        let me = &mut self.ranks[rank as usize];
        let command = message.command();
        match (me.state, command) {
            (_, "abort") | (State::New, "init") | (State::Ready, _) => {}
            (State::New, _) => return Err(format!("`{command}` before `init`")),
            (State::Waiting, _) => return Err(format!("`{command}` inside a barrier")),
            (State::Finalized, _) => return Err(format!("`{command}` after `finalize`")),
        }
        let line = match command {
            "init" => {
                let version: u32 = message.number("pmi_version")?;
                me.state = if version == 1 { State::Ready } else { State::New };
                Line::new("response_to_init")
                    .field("pmi_version", 1)
                    .field("pmi_subversion", 1)
                    .field("rc", if version == 1 { 0 } else { -1 })
            }
            "get_maxes" => Line::new("maxes")
                .field("rc", 0)
                .field("kvsname_max", NAME_MAX)
                .field("keylen_max", KEY_MAX)
                .field("vallen_max", VALUE_MAX),
            "get_appnum" => Line::new("appnum").field("rc", 0).field("appnum", self.programs[rank as usize]),
            "get_universe_size" => Line::new("universe_size").field("rc", 0).field("size", self.ranks.len()),
            "get_my_kvsname" => Line::new("my_kvsname").field("rc", 0).field("kvsname", &self.name),
            "put" => self.put(rank, message)?,
            "get" => self.get(message)?,
            "barrier_in" => {
                me.state = State::Waiting;
                return Ok(Answer::Replies(self.settle_barrier()));
            }
            "finalize" => {
                me.state = State::Finalized;
                let mut replies = self.settle_barrier();
                replies.push((rank, Line::new("finalize_ack").field("rc", 0).end()));
                return Ok(Answer::Replies(replies));
            }
            "abort" => {
                let code = message.number("exitcode").unwrap_or(1);
                let reason = match me.answers {
                    true => message.text("error_msg"),
                    false => message.field("error_msg").map(|text| text.replace('_', " ")),
                };
                return Ok(Answer::Abort { code, reason: reason.unwrap_or_default() });
            }
            HELLO => {
                me.answers = true;
                return Ok(Answer::Replies(Vec::new()));
            }
            WAITS => return Ok(Answer::Waits(message.text("text").unwrap_or_default())),
            "publish_name" => refusal("publish_result"),
            "unpublish_name" => refusal("unpublish_result"),
            "lookup_name" => refusal("lookup_result"),
            _ => return Err(format!("unknown command {}", quote(command.as_bytes()))),
        };
        Ok(Answer::Replies(vec![(rank, line.end())]))
    }

    fn put(&mut self, rank: u32, message: &Message) -> Result<Line, String> {
        let (key, value) = (self.key(message)?, message.need("value")?);
        let result = |rc: i32, text: &str| Ok(Line::new("put_result").field("rc", rc).text("msg", text));
        if key.len() >= KEY_MAX || value.len() >= VALUE_MAX {
            return result(-1, "too_long");
        }
        // A key that is put again replaces the old value, and counts for the rank that put it first.
        let size = key.len() + value.len();
        let (owner, old) = self.values.get(key).map_or((rank, 0), |(owner, old)| (*owner, key.len() + old.len()));
        let mine = &mut self.ranks[owner as usize].stored;
        for (stored, most, whose) in [(*mine, RANK_STORE_MAX, "rank"), (self.stored, STORE_MAX, "job")] {
            if stored - old + size > most {
                return result(-1, &format!("no room: the launcher keeps at most {most} characters for a {whose}"));
            }
        }
        *mine = *mine - old + size;
        self.stored = self.stored - old + size;
        self.values.insert(key.to_owned(), (owner, value.to_owned()));
        result(0, "success")
    }

    fn get(&self, message: &Message) -> Result<Line, String> {
        let result = Line::new("get_result");
        Ok(match self.values.get(self.key(message)?) {
            Some((_, value)) => result.field("rc", 0).field("msg", "success").field("value", value),
            None => result.field("rc", -1).field("msg", "key_not_found").field("value", "unknown"),
        })
    }

    /// The key of a request, which must be about this job.
    fn key<'a>(&self, message: &'a Message) -> Result<&'a str, String> {
        let name = message.need("kvsname")?;
        if name != self.name {
            return Err(format!("key-value space {} is not this job's", quote(name.as_bytes())));
        }
        message.need("key")
    }

    /// Releases the ranks in the barrier when all have arrived, and refuses them when one can no longer arrive.
    fn settle_barrier(&mut self) -> Replies {
        let all_in = |state| (0u32..).zip(&self.ranks).filter(move |(_, r)| r.state == state).map(|(rank, _)| rank);
        let waiting: Vec<u32> = all_in(State::Waiting).collect();
        let finalized = all_in(State::Finalized).next().map(|rank| (rank, "it has finalized"));
        let missing = self.lost.as_ref().map(|(rank, why)| (*rank, why.as_str())).or(finalized);
        let line = Line::new("barrier_out");
        let line = match missing {
            Some((lost, why)) => line.field("rc", -1).field(LOST_FIELD, lost).text("msg", why),
            None if waiting.len() == self.ranks.len() => line.field("rc", 0),
            None => return Vec::new(),
        };
        let line = line.end();
        waiting.iter().for_each(|rank| self.ranks[*rank as usize].state = State::Ready);
        waiting.into_iter().map(|rank| (rank, line.clone())).collect()
    }
}

fn refusal(command: &str) -> Line {
    Line::new(command).field("rc", -1).field("msg", "not_supported")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn started(size: u32) -> Server {
        let mut s = Server::named("job".into(), vec![0; size as usize]);
        for rank in 0..size {
            s.line(rank, b"cmd=init pmi_version=1 pmi_subversion=1");
        }
        s
    }

    fn replies(answer: Answer) -> Replies {
        match answer {
            Answer::Replies(r) => r,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn barrier_lets_all_go_when_the_last_comes() {
        let mut s = started(3);
        assert_eq!(replies(s.line(2, b"cmd=barrier_in")), []);
        assert_eq!(replies(s.line(0, b"cmd=barrier_in")), []);
        let out = replies(s.line(1, b"cmd=barrier_in"));
        assert_eq!(out.iter().map(|(r, _)| *r).collect::<Vec<_>>(), [0, 1, 2]);
        assert!(out.iter().all(|(_, l)| l == "cmd=barrier_out rc=0\n"));
        assert_eq!(replies(s.line(1, b"cmd=barrier_in")), []);
    }

    #[test]
    fn barrier_names_the_rank_that_is_gone() {
        let mut s = started(3);
        s.line(0, b"cmd=barrier_in");
        let out = s.gone(1, "it was killed by signal 9");
        assert_eq!(out.len(), 1);
        assert!(out[0].0 == 0 && out[0].1.contains("farside_lost=1 msg=it%20was%20killed"), "{out:?}");
        // A rank that ends because another rank was lost is not blamed.
        s.gone(0, "it exited with code 1");
        let late = replies(s.line(2, b"cmd=barrier_in"));
        assert!(late[0].0 == 2 && late[0].1.contains("farside_lost=1"), "{late:?}");
    }

    #[test]
    fn barrier_fails_when_a_rank_finalizes_instead() {
        let mut s = started(2);
        s.line(0, b"cmd=barrier_in");
        let out = replies(s.line(1, b"cmd=finalize"));
        assert!(out[0].1.contains("farside_lost=1") && out[1].1.starts_with("cmd=finalize_ack"), "{out:?}");
    }

    #[test]
    fn finalize_ends_what_was_unfinished() {
        let mut s = Server::named("job".into(), vec![0]);
        assert!(!s.is_unfinished(0));
        s.line(0, b"cmd=init pmi_version=1 pmi_subversion=1");
        assert!(s.is_unfinished(0));
        s.line(0, b"cmd=finalize");
        assert!(!s.is_unfinished(0));
    }

    #[test]
    fn broken_lines_are_named() {
        for (line, part) in [
            (b"nonsense" as &[u8], "no `cmd=`"),
            (b"cmd=fly", "unknown command \"fly\""),
            (b"cmd=put kvsname=other key=a value=b", "not this job's"),
            (b"cmd=put kvsname=job value=b", "`key=` is missing"),
            (b"cmd=init", "`pmi_version=` is missing"),
        ] {
            match started(1).line(0, line) {
                Answer::Broken(what) => assert!(what.contains(part), "{what}"),
                other => panic!("{other:?}"),
            }
        }
        let mut early = Server::named("job".into(), vec![0]);
        assert!(matches!(early.line(0, b"cmd=get_maxes"), Answer::Broken(_)));
    }

    #[test]
    fn spawn_is_refused_as_a_whole() {
        let mut s = started(1);
        for line in [b"mcmd=spawn" as &[u8], b"nprocs=1", b"execname=x"] {
            assert_eq!(replies(s.line(0, line)), []);
        }
        assert!(replies(s.line(0, b"endcmd"))[0].1.starts_with("cmd=spawn_result rc=-1"));
    }

    #[test]
    fn put_refuses_what_is_longer_than_told() {
        let mut s = started(1);
        let line = |n: usize| format!("cmd=put kvsname=job key=k value={}", "x".repeat(n)).into_bytes();
        assert!(replies(s.line(0, &line(VALUE_MAX - 1)))[0].1.contains("rc=0"));
        assert!(replies(s.line(0, &line(VALUE_MAX)))[0].1.contains("rc=-1"));
    }

    #[test]
    fn put_is_refused_beyond_the_room_of_a_rank_and_others_go_on() {
        let mut s = started(2);
        let value = "x".repeat(1000);
        let mut put = |rank, key: usize| {
            let line = format!("cmd=put kvsname=job key=k{key} value={value}");
            replies(s.line(rank, line.as_bytes())).remove(0).1
        };
        let all = RANK_STORE_MAX / 1000;
        let refused = (0..all).map(|key| put(0, key)).find(|reply| reply.contains("rc=-1")).unwrap();
        assert!(
            refused.contains("no%20room") && refused.contains("4194304%20characters%20for%20a%20rank"),
            "{refused}"
        );
        assert!(put(1, all).contains("rc=0"), "another rank has room of its own");
        assert!((0..all).all(|_| put(0, 0).contains("rc=0")), "a key that is put again takes no more room");
    }

    proptest! {
        #[test]
        fn any_lines_leave_the_server_sane(lines in proptest::collection::vec((0u32..3, "(cmd=(init|put|get|barrier_in|finalize|abort|x)|mcmd=spawn|endcmd|kvsname=job|key=k|value=v|pmi_version=1| ){0,6}"), 0..40)) {
            let mut s = Server::named("job".into(), vec![0; 3]);
            for (rank, line) in lines {
                if let Answer::Replies(r) = s.line(rank, line.as_bytes()) {
                    prop_assert!(r.iter().all(|(rank, l)| *rank < 3 && l.ends_with('\n') && l.matches('\n').count() == 1));
                }
            }
        }
    }
}
