//! Upper bounds on the instructions of one put.

use farside_instructions as instructions;

/// The instructions of some calls, counted by a release build. `None`, with a message, if valgrind is not installed.
fn count<const N: usize>(names: [&str; N]) -> Option<[f64; N]> {
    if !instructions::has_valgrind() {
        farside_harness::skip(&format!("instructions of {}", names.join(", ")), "valgrind does not start");
        return None;
    }
    let program = instructions::release::program();
    Some(names.map(|name| instructions::of_one(&program, name).unwrap()))
}

/// Instructions of a put between two vectors, compared with the loop that copies.
#[test]
fn put_between_vectors_takes_at_most_180_instructions_more_than_a_loop_by_hand() {
    let Some([by_hand, blocks, block]) = count(["by_hand", "put_blocks", "put_block"]) else { return };
    println!("64 blocks of 8 bytes: {blocks:.1} instructions, by hand {by_hand:.1}; one block: {block:.1}");
    assert!(by_hand >= 128.0, "{by_hand} instructions for 64 loads and stores are not credible");
    // By hand, one block takes about 20 instructions, of which 12 are the loop of calls.
    assert!(blocks <= by_hand + 180.0 && block <= 200.0, "{blocks} and {block} instructions");
}

#[test]
fn message_to_itself_takes_at_most_660_instructions_from_send_to_handler() {
    let Some([message]) = count(["message"]) else { return };
    println!("an active message of 8 bytes, its arrival and its handler: {message:.1} instructions");
    assert!((100.0..=660.0).contains(&message), "{message} instructions");
}

#[test]
fn put_in_lock_all_epoch_takes_at_most_52_instructions() {
    let Some([of_loop, put]) = count(["loop", "put"]) else { return };
    println!("a put of 8 bytes in lock_all: {put:.1} instructions, of which the loop is {of_loop:.1}");
    assert!(of_loop >= 1.0 && put > of_loop, "a put of {put} and a loop of {of_loop} instructions are not credible");
    assert!(put <= 52.0, "{put} instructions");
}
