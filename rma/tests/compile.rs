//! Programs that must not compile, since they would race with a transfer or outlive a buffer; and one that must.
//!
//! The messages are compared too, so that a program is refused for its own reason. A compiler with other
//! words: `TRYBUILD=overwrite cargo test -p farside-rma --test compile`, and read the difference.

#[test]
fn misuse_does_not_compile() {
    let programs = trybuild::TestCases::new();
    programs.compile_fail("tests/ui/*.rs");
    programs.pass("tests/ui_pass/*.rs");
}

/// Compiles only if none of the types is `Send` or `Sync`: a rank is one thread.
#[test]
fn nothing_of_a_rank_goes_to_another_thread() {
    use farside_rma::{Epoch, Exposure, Fences, PassiveEpoch, Request, SharedSlice};
    use farside_rma::{Job, LockWindow, SharedWindow, Team, Window};

    trait Ambiguous<A> {
        fn neither() {}
    }
    struct IsSend;
    struct IsSync;
    impl<T: ?Sized> Ambiguous<()> for T {}
    impl<T: ?Sized + Send> Ambiguous<IsSend> for T {}
    impl<T: ?Sized + Sync> Ambiguous<IsSync> for T {}
    macro_rules! neither {
        ($($t:ty),*) => { $(<$t as Ambiguous<_>>::neither();)* };
    }
    neither!(Job, Team, Window<'static, u64>, LockWindow<u64>, SharedWindow<u64>, SharedSlice<'static, u64>);
    neither!(Epoch<'static, 'static, u64>, PassiveEpoch<'static, 'static, u64>, Request<'static>);
    neither!(Exposure<'static, u64>, Fences<'static, u64>);
}
