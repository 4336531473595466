//! The rules of the standard that level 2 prints in addition to a complaint.

/// The rule for a value.
pub fn rule(name: &str) -> &'static str {
    match name {
        "root" => {
            "All ranks must pass the same root. On an intercommunicator the root passes MPI_ROOT, the other ranks of \
             its group MPI_PROC_NULL, and the ranks of the other group the rank of the root."
        }
        "op" => "A reduction has one operator: if one rank passes a predefined operator, all ranks must pass it.",
        "in_place" => "MPI_IN_PLACE must be passed by all ranks of this call or by none.",
        "datasize" => "All ranks must contribute the same amount to a reduction: count times the size of the datatype.",
        "scattersize" => "All ranks must pass the same recvcounts, by which the result of the reduction is divided.",
        "signature" => {
            "Data must be received as the same sequence of basic types that was sent, however the datatypes are \
                        constructed."
        }
        "size" => {
            "The amount of data that a rank sends to another rank must equal the amount that the receiver expects: \
             count times the size of the datatype."
        }
        "inter" => {
            "On an intercommunicator, the result of each group's reduction is scattered over the other group, so both \
             groups must pass the same total."
        }
        "info" => "All ranks must pass an Info object with the same keys and values.",
        "same_size" | "same_disp_unit" => "With this Info key all ranks must pass the same value.",
        "assert" => "MPI_MODE_NOPRECEDE and MPI_MODE_NOSUCCEED must be passed to a fence by all ranks or by none.",
        "group" => "Each rank of a group must pass this same group, with the ranks in the same order.",
        "tag" => "All ranks must pass the same tag.",
        "local_leader" => "All ranks of the local communicator must pass the same leader.",
        "high" => "All ranks of a group must pass the same value of high.",
        "split_type" => "All ranks must pass the same split_type, or MPI_UNDEFINED.",
        "edge" => {
            "Both ranks of an edge must pass it the same number of times and with the same weight: the source among \
             its destinations, and the destination among its sources."
        }
        "nnodes" | "indx" | "edges" => "All ranks must pass the same complete graph.",
        _ => "All ranks must pass the same value.",
    }
}
