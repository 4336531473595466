//! Programs that must not compile. The messages are compared too, so that a program is refused for the intended reason.
//! If a compiler has other messages, run `TRYBUILD=overwrite cargo test -p farside-misuse` and review the difference.

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
