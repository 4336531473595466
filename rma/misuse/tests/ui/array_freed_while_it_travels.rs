//! An array cannot be freed while a transfer to another task is in progress.

use farside_rma::prelude::*;

fn main() -> Result<()> {
    Job::threads(2, |job| {
        let team = job.world()?;
        let Some(task) = team.split(Some(team.rank() as u32), 0)? else { return Ok(()) };
        let array = GlobalArray::<u32, 1>::new(&task, [100])?;
        let link = array.link(&team, 1 - team.rank(), 3)?;
        let transfer = if team.rank() == 0 { link.start_send()? } else { link.start_recv()? };
        array.free()?;
        transfer.wait()
    })
    .map(drop)
}
