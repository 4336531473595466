//! Upper bounds on the instructions of operations through the typed interface.

use farside_instructions as instructions;

/// The instructions of some calls, counted by a release build. `None`, with a message, if valgrind is not installed.
fn count<const N: usize>(names: [&str; N]) -> Option<[f64; N]> {
    count_with(names, &[])
}

/// The same, with these settings.
fn count_with<const N: usize>(names: [&str; N], settings: &[(&str, &str)]) -> Option<[f64; N]> {
    if !instructions::has_valgrind() {
        farside_harness::skip(&format!("instructions of {}", names.join(", ")), "valgrind does not start");
        return None;
    }
    let program = instructions::release::program();
    Some(names.map(|name| instructions::of_one(&program, name, settings).unwrap()))
}

/// Instructions of a put between two vectors, compared with the loop that copies.
#[test]
fn put_between_vectors_takes_at_most_180_instructions_more_than_a_loop_by_hand() {
    let Some([by_hand, blocks, block]) = count(["by_hand", "put_blocks", "put_block"]) else { return };
    println!("64 blocks of 8 bytes: {blocks:.1} instructions, by hand {by_hand:.1}; one block: {block:.1}");
    assert!(by_hand >= 128.0, "{by_hand} instructions for 64 loads and stores are implausible");
    // A hand-written copy of one block takes about 20 instructions, 12 of which are the loop around the calls.
    assert!(blocks <= by_hand + 180.0 && block <= 200.0, "{blocks} and {block} instructions");
}

#[test]
fn message_to_itself_takes_at_most_670_instructions_from_send_to_handler() {
    let Some([message]) = count(["message"]) else { return };
    println!("an active message of 8 bytes, its arrival and its handler: {message:.1} instructions");
    assert!((100.0..=670.0).contains(&message), "{message} instructions");
}

#[test]
fn put_in_lock_all_epoch_takes_at_most_52_instructions() {
    let Some([of_loop, put]) = count(["loop", "put"]) else { return };
    println!("a put of 8 bytes in lock_all: {put:.1} instructions, of which the loop is {of_loop:.1}");
    assert!(of_loop >= 1.0 && put > of_loop, "a put of {put} and a loop of {of_loop} instructions are implausible");
    assert!(put <= 52.0, "{put} instructions");
}

#[test]
fn put_and_fence_in_a_chain_take_at_most_265_instructions() {
    let Some([chained]) = count(["fences"]) else { return };
    println!("a put of 8 bytes and a fence, in a chain of fence epochs: {chained:.1} instructions");
    assert!((60.0..=265.0).contains(&chained), "{chained} instructions");
}

/// Operations over shared memory, beside another device. A message to this rank takes a poll, and a put of memory that is
/// treated as not mapped takes a request.
#[test]
fn several_devices_add_at_most_75_instructions_to_a_poll_and_155_to_a_request() {
    const UNMAPPED: (&str, &str) = ("FARSIDE_TEST_FAULT", "unmapped");
    const ALONE: (&str, &str) = ("FARSIDE_DEVICE", "shm");
    const JOINED: [(&str, &str); 2] = [("FARSIDE_DEVICE", "route"), ("FARSIDE_DEVICES", "shm,tcp")];
    let Some([message]) = count_with(["message"], &[ALONE]) else { return };
    let Some([joined_message]) = count_with(["message"], &JOINED) else { return };
    let Some([put]) = count_with(["put_flush"], &[ALONE, UNMAPPED]) else { return };
    let Some([joined_put]) = count_with(["put_flush"], &[JOINED[0], JOINED[1], UNMAPPED]) else { return };
    println!("a message: {message:.1} instructions, {joined_message:.1} beside another device");
    println!("a put of memory that is not mapped: {put:.1} instructions, {joined_put:.1} beside another device");
    assert!((0.0..=75.0).contains(&(joined_message - message)), "{joined_message} instead of {message} instructions");
    assert!((0.0..=155.0).contains(&(joined_put - put)), "{joined_put} instead of {put} instructions");
}
