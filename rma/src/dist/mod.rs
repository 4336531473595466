//! Collections that are distributed over a team, for irregular programs.
//!
//! | you want | take |
//! |---|---|
//! | keys and values, each at the rank that its key's hash gives | [`Map`] |
//! | items that make further items, worked on by any rank | [`Queue`] |
//! | elements in order, or in a random order | [`Reorder`]: `team.sort`, `team.shuffle` |
//! | a value of any type at all ranks, or the values of all | [`Values`]: `team.broadcast_value`, `allgather_values`, `reduce_values` |
//! | prefix sums of an array | `prefix`, `prefix_exclusive` of [`Symmetric`](crate::Symmetric::prefix) and [`GlobalArray`](crate::GlobalArray::prefix) |
//!
//! Keys, values and arguments may have any type that implements serde's `Serialize` and `Deserialize`; they are encoded by
//! postcard.
//!
//! | call of a map | messages |
//! |---|---|
//! | `insert`, `get`, `remove`, `update` | one to the owner and its answer, as a [call](crate::calls); none at the owner |
//! | `get_all` | the same for each 64 keys of an owner, all at a time |
//! | `inserts`, `updates` | an allgather and a barrier; then blocks, as in [`aggregate`](crate::aggregate), with pieces of 16 bytes of which 15 are those of an item |
//! | `len`, `is_empty`; `fold`, `reduce` | an allreduce; an allgather |
//! | `clear` | a barrier |
//! | `local`, `retain` | none |
//!
//! | call of a queue | messages |
//! |---|---|
//! | `push`, `next` | one for each other rank that waits for items of this one |
//! | `next` without items | at most ⌈log2 P⌉, and two in each round that detects the end |

mod map;
mod prefix;
mod queue;
mod random;
mod sort;
mod updates;
mod values;

pub use map::{Map, Update};
pub use queue::Queue;
pub use sort::Reorder;
pub use updates::Updates;
pub use values::Values;
