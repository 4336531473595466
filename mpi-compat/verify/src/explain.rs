//! The rules that level 2 prints in addition to a message.

/// The rule of the standard about a value.
pub fn rule(name: &str) -> &'static str {
    match name {
        "root" => {
            "All ranks must name the same root; between groups the root gives MPI_ROOT, the others of its group \
                   MPI_PROC_NULL, and the other group the rank of the root."
        }
        "op" => "A reduction has one operator: if one rank gives a predefined operator, all ranks must give it.",
        "in_place" => "MPI_IN_PLACE must be given by all ranks of this call or by none.",
        "datasize" => "All ranks must contribute the same amount to a reduction: count times the size of the datatype.",
        "scattersize" => "All ranks must give the same recvcounts, which divide the result of the reduction.",
        "signature" => {
            "Data must be received as the same sequence of basic types that was sent, however the datatypes are \
                        constructed."
        }
        "size" => {
            "The amount that a rank sends to another one must be exactly the amount that this one expects: count times \
                   the size of the datatype."
        }
        "inter" => {
            "Between two groups, the amount that one group reduces is scattered over the other one, so both must \
                    give the same total."
        }
        "info" => "All ranks must give an Info object with the same keys and values.",
        "same_size" | "same_disp_unit" => "With this Info key all ranks must give the same value.",
        "assert" => "MPI_MODE_NOPRECEDE and MPI_MODE_NOSUCCEED must be given to a fence by all ranks or by none.",
        "group" => "Each rank of a group must give this same group, with the ranks in the same order.",
        "tag" => "All ranks must give the same tag.",
        "local_leader" => "All ranks of the local communicator must name the same leader.",
        "high" => "All ranks of a group must give the same value of high.",
        "split_type" => "All ranks must give the same kind of split, or MPI_UNDEFINED.",
        "edge" => {
            "Each edge must be given by both of its ranks, the same number of times and with the same weight: among the \
                   destinations of one rank and the sources of the other."
        }
        "nnodes" | "indx" | "edges" => "All ranks must give the same graph, completely.",
        _ => "All ranks must give the same value.",
    }
}
