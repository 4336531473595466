//! Instructions of one put: a number that can be counted is asserted.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use farside_instructions as instructions;

/// The program `instructions`, built for release: the one that `FARSIDE_INSTRUCTIONS_BIN` names, or one built now.
fn program() -> PathBuf {
    if let Some(path) = env::var_os("FARSIDE_INSTRUCTIONS_BIN") {
        return path.into();
    }
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "farside-instructions", "--bin", "instructions", "--message-format=json"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).expect("cargo writes text");
    let mut executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    executables.next_back().expect("cargo names the program")
}

/// What a put between two vectors does beside the loop that copies.
#[test]
fn put_between_vectors_takes_at_most_180_instructions_more_than_a_loop_by_hand() {
    if !instructions::has_valgrind() {
        println!("put_between_vectors: skipped, for valgrind is not here");
        return;
    }
    let program = program();
    let [by_hand, blocks, block] =
        ["by_hand", "put_blocks", "put_block"].map(|name| instructions::of_one(&program, name).unwrap());
    println!("64 blocks of 8 bytes: {blocks:.1} instructions, by hand {by_hand:.1}; one block: {block:.1}");
    assert!(by_hand >= 128.0, "{by_hand} instructions for 64 loads and stores are not credible");
    assert!(blocks <= by_hand + 180.0 && block <= 180.0, "{blocks} and {block} instructions");
}

#[test]
fn message_to_itself_takes_at_most_560_instructions_from_send_to_handler() {
    if !instructions::has_valgrind() {
        println!("message_to_itself: skipped, for valgrind is not here");
        return;
    }
    let message = instructions::of_one(&program(), "message").unwrap();
    println!("an active message of 8 bytes, its arrival and its handler: {message:.1} instructions");
    assert!(message >= 100.0, "{message} instructions for a message are not credible");
    assert!(message <= 560.0, "{message} instructions");
}

#[test]
fn put_in_lock_all_epoch_takes_at_most_60_instructions() {
    if !instructions::has_valgrind() {
        println!("put_in_lock_all_epoch_takes_at_most_60_instructions: skipped, for valgrind is not here");
        return;
    }
    let program = program();
    let of_loop = instructions::of_one(&program, "loop").unwrap();
    let put = instructions::of_one(&program, "put").unwrap();
    println!("a put of 8 bytes in lock_all: {put:.1} instructions, of which the loop is {of_loop:.1}");
    assert!(of_loop >= 1.0 && put > of_loop, "a put of {put} and a loop of {of_loop} instructions are not credible");
    assert!(put <= 60.0, "{put} instructions");
}
