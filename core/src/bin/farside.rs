//! The `farside` command.

fn main() -> std::process::ExitCode {
    farside_core::launch::main()
}
