//! Programs that must compile; they are not run. `rma/misuse` has programs that must not compile.

mod everything;

#[test]
fn every_epoch_and_operation_compiles() {
    let _ = (everything::active, everything::passive);
}

/// Compiles only if none of the types is `Send` or `Sync`: a rank is one thread.
#[test]
fn nothing_of_a_rank_goes_to_another_thread() {
    use farside_rma::calls::Calls;
    use farside_rma::messages::{Message, ReceiveRequest, SendRequest};
    use farside_rma::{Epoch, Exposure, Fences, PassiveEpoch, Request, SharedSlice};
    use farside_rma::{Flags, GlobalArray, Job, LockWindow, SharedWindow, Symmetric, Team, Window};

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
    neither!(Symmetric<u64>, Flags, GlobalArray<u64, 1>, Calls);
    neither!(Message, ReceiveRequest<'static, u64>, SendRequest<'static>);
}
