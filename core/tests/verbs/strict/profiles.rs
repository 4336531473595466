//! Profiles: limits of adapters as their providers enforce them. `rdma-core` is that of August 2026, files of the kernel
//! are those below `drivers/infiniband/hw`.

use super::knobs::Knobs;

/// The profile of this name.
pub(crate) fn profile(name: &str) -> Option<Knobs> {
    let all = Knobs::LENIENT;
    Some(match name {
        "mlx5" => Knobs {
            // Kernel, mlx5/main.c, `mlx5_ib_query_device`: `max_send_sge` is (512 - 16 - 16) / 16, as is
            // `MLX5_MAX_SGE_RD` in include/linux/mlx5/device.h.
            pieces: Some(30),
            read_pieces: Some(30),
            // rdma-core, providers/mlx5/verbs.c, `mlx5_calc_send_wqe`: as much as asked for, up to the longest request;
            // qp.c, `set_data_inl_seg`: `ENOMEM` for more than a queue pair has.
            inline: Some(512),
            inline_error: libc::ENOMEM,
            ..all
        },
        "irdma" => Knobs {
            // rdma-core, providers/irdma/user.h: `IRDMA_MAX_WQ_FRAGMENT_COUNT`, `IRDMA_MAX_SGE_RD`,
            // `IRDMA_MAX_INLINE_DATA_SIZE`; checked in uverbs.c, `irdma_ucreate_qp` and `irdma_upost_send`. Kernel,
            // irdma/verbs.c, `irdma_query_device`: only generation 3 has atomics and shared receive queues, and
            // `max_cqe` is one less than `IRDMA_MAX_CQ_SIZE`.
            pieces: Some(13),
            read_pieces: Some(13),
            inline: Some(101),
            completions: Some(1_048_574),
            ..all
        },
        "bnxt_re" => Knobs {
            // Kernel, bnxt_re/qplib_sp.h: `BNXT_STATIC_MAX_SGE`; rdma-core, providers/bnxt_re/verbs.c,
            // `bnxt_re_check_qp_limits`.
            pieces: Some(6),
            read_pieces: Some(6),
            // bnxt_re-abi.h, `BNXT_RE_MAX_INLINE_SIZE`; verbs.c, `bnxt_re_build_tx_sge` through `bnxt_re_post_send`:
            // `ENOMEM`.
            inline: Some(96),
            inline_error: libc::ENOMEM,
            // Kernel, bnxt_re/bnxt_re.h, `BNXT_RE_MAX_MR_SIZE`; ib_verbs.c, `bnxt_re_reg_user_mr`: `ENOMEM`.
            registration: Some(1 << 39),
            registration_error: libc::ENOMEM,
            ..all
        },
        "bnxt_re-no-atomics" => Knobs {
            // Kernel, bnxt_re/qplib_res.c, `bnxt_qplib_determine_atomics`: only where PCIe has them.
            atomics: false,
            ..profile("bnxt_re")?
        },
        "ionic" => Knobs {
            // rdma-core, providers/ionic/ionic_verbs.c, `ionic_ctx_ops`: no `create_srq`; kernel,
            // ionic/ionic_ibdev.c, `ionic_query_device`: `max_srq` stays 0.
            shared_receives: false,
            ..all
        },
        "efa-like" => Knobs {
            // rdma-core, providers/efa/verbs.c: `create_qp` refuses a shared receive queue, `efa_check_qp_limits`;
            // efa_io_defs.h, `EFA_IO_TX_DESC_INLINE_MAX_SIZE`. The kernel's efa/efa_verbs.c, `efa_query_device`, sets
            // no `atomic_cap`.
            shared_receives: false,
            atomics: false,
            pieces: Some(2),
            read_pieces: Some(1),
            inline: Some(32),
            ..all
        },
        // openucx/ucx #11649: registration of a key that is not of relaxed order fails.
        "relaxed-only" => Knobs { relaxed_only: true, ..all },
        _ => return None,
    })
}
