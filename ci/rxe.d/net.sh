# Addresses of the devices of ci/rxe, and the ways between them. Sourced by machine and bin/rxe-link; $devices is set.
mac() { printf '02:00:0a:09:00:%02x' $(($1 + 1)); }
address() { echo "10.9.0.$(($1 + 1))"; }

# queue_link LINK [KIND [VALUE ...]]: gives the link a queue for sending. Without one, the link reports an error for each packet
# while its other end is down, and this rxe repeats the packet at once, inside the kernel: for ever, if there is one processor.
queue_link() { tc qdisc replace dev "$1" root "${2-pfifo}" limit 100000 "${@:3}"; }

# What a link loses when it goes down and needs again when it comes up.
route_device() {
    local j
    ip route replace 10.9.0.0/24 dev "e$1" src "$(address "$1")" table $((100 + $1))
    for ((j = 0; j < devices; j++)); do
        [ "$1" = $j ] || ip neigh replace "$(address $j)" lladdr "$(mac $j)" dev "e$1" nud permanent
    done
}
