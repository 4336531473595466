//! The smallest put and get: `farside run -n 4 target/release/examples/hello_put_get`.

use farside_rma::prelude::*;

fn main() -> Result<()> {
    let job = Job::init()?;
    let team = job.world()?;
    let (me, right) = (team.rank(), (team.rank() + 1) % team.size());

    // One number per rank, which the other ranks can access.
    let mut window = Window::<u64>::allocate(&team, 1)?;
    // Each rank puts 100 + its rank to its right neighbour, then gets that neighbour's number.
    window.fence(Assert::empty(), |epoch| epoch.put_value(100 + me as u64, right, 0))?;
    let mut theirs = [0];
    window.fence(Assert::empty(), |epoch| epoch.get(&mut theirs, right, 0))?;

    assert_eq!(theirs, [100 + me as u64]);
    println!("rank {me} has {} from the left, and gets {} from the right", window.local()?[0], theirs[0]);
    window.free()?;
    job.finalize()
}
