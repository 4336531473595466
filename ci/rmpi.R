# What R programs use of MPI, by Rmpi: run on any number of ranks by ci/programs.
library(Rmpi)
me <- mpi.comm.rank(0)
n <- mpi.comm.size(0)
numbers <- mpi.bcast(if (me == 0) as.double(1:5) else double(5), type = 2, rank = 0, comm = 0)
stopifnot(all.equal(numbers, as.double(1:5)))
stopifnot(mpi.allreduce(as.integer(me + 1), type = 1, op = "sum", comm = 0) == n * (n + 1) / 2)

# Objects go as bytes, whose number the receiver asks for.
left <- (me + n - 1) %% n
mpi.isend.Robj(list(me, "text", c(a = me)), dest = (me + 1) %% n, tag = 3, comm = 0)
object <- mpi.recv.Robj(source = left, tag = 3, comm = 0)
mpi.wait(0)
stopifnot(object[[1]] == left, object[[2]] == "text", object[[3]]["a"] == left)
stopifnot(identical(unlist(mpi.allgather.Robj(paste("rank", me), comm = 0)), paste("rank", 0:(n - 1))))

all <- mpi.gather(as.double(me), type = 2, rdata = double(n), root = 0, comm = 0)
if (me == 0) stopifnot(all.equal(all, as.double(0:(n - 1))))
own <- mpi.scatter(as.integer(10 * 0:(n - 1)), type = 1, rdata = integer(1), root = 0, comm = 0)
stopifnot(own == 10 * me)
mpi.barrier(0)
if (me == 0) cat("all", n, "ranks agree\n")
mpi.quit()
