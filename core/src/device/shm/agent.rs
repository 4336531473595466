//! The agent: a thread that serves requests while its rank computes. Started with the first region that peers
//! may need help with at any time (a lockable window over memory that is not mapped), never otherwise.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::shared::Shared;
use super::{layout, park};
use crate::error::{Error, Result};

#[derive(Debug)]
pub(super) struct Agent {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(super) fn start(shared: Arc<Shared>) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name(format!("farside-agent-{}", shared.ranks[shared.me]))
            .spawn({
                let (shared, stop) = (shared.clone(), stop.clone());
                move || run(&shared, &stop)
            })
            .map_err(|e| Error::system("start the agent thread", e))?;
        shared.own.mapping().half(layout::AGENT_PRESENT).store(1, Ordering::SeqCst);
        Ok(Self { shared, stop, thread: Some(thread) })
    }
}

fn run(shared: &Shared, stop: &AtomicBool) {
    let own = shared.own.mapping();
    let bell = own.half(layout::AGENT_BELL);
    loop {
        let heard = bell.load(Ordering::SeqCst);
        if stop.load(Ordering::SeqCst) {
            return;
        }
        shared.serve(&shared.agent_stats);
        park::futex_wait(bell, heard, Duration::from_secs(1));
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let own = self.shared.own.mapping();
        own.half(layout::AGENT_PRESENT).store(0, Ordering::SeqCst);
        self.stop.store(true, Ordering::SeqCst);
        own.half(layout::AGENT_BELL).fetch_add(1, Ordering::SeqCst);
        park::futex_wake(own.half(layout::AGENT_BELL));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
