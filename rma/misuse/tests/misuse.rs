//! Programs that must not compile. The messages are compared too, so that a program is refused for its own reason. A
//! compiler with other words: `TRYBUILD=overwrite cargo test -p farside-misuse`, and read the difference.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
