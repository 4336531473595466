//! The agent: a thread that answers datagrams and handles the device's asynchronous events while its rank computes. It
//! sleeps when neither arrives, and accesses neither windows nor the rank's requests. When the rank sleeps on another
//! device ([`Elsewhere`](super::super::wait::Elsewhere)), the agent also watches for completions and wakes it.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::address;
use super::super::sys::AsyncEvent;
use super::super::wait::sleep;
use super::datagrams::Endpoint;
use super::links::Links;
use crate::error::{Error, Result};

/// Number of times that the farewell message is sent, since datagrams may be lost.
const FAREWELLS: usize = 3;

pub(crate) struct Agent {
    links: Arc<Links>,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub(crate) fn start(links: &Arc<Links>, endpoint: Endpoint) -> Result<Self> {
        let thread = std::thread::Builder::new()
            .name(format!("farside-verbs-{}", links.me))
            .spawn({
                let links = Arc::clone(links);
                move || run(&links, endpoint)
            })
            .map_err(|e| Error::system("start the agent thread", e))?;
        Ok(Self { links: Arc::clone(links), thread: Some(thread) })
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.links.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn send(links: &Links, endpoint: &mut Endpoint, to: u32, message: &address::Message) {
    let bytes = address::write(links.me, links.token(to), message);
    let path = links.path(&links.lock(), to);
    endpoint.send(&links.domain, to as usize, &links.addresses[to as usize], path, &bytes);
}

fn run(links: &Links, mut endpoint: Endpoint) {
    let mut out = Vec::new();
    loop {
        if let Err(e) = endpoint.arm() {
            fatal(links, e.to_string());
            return;
        }
        let received = endpoint.receive(|endpoint, bytes| {
            let Some((source, message)) = address::read(bytes, links.token(links.me)) else {
                tracing::debug!("a datagram of {} bytes that is not for this rank was dropped", bytes.len());
                return;
            };
            if let Some(answer) = links.receive(source, message) {
                send(links, endpoint, source, &answer);
            }
        });
        if let Err(e) = received {
            fatal(links, e.to_string());
            return;
        }
        while let Some(event) = links.context.event() {
            note(links, event);
        }
        // Relaxed: only this thread writes it.
        if let Err(e) = endpoint.use_partition(links.pkey_index.load(Ordering::Relaxed)) {
            fatal(links, e.to_string());
            return;
        }
        let next = links.due(&mut out);
        for (to, message) in out.drain(..) {
            send(links, &mut endpoint, to, &message);
        }
        if links.stop.load(Ordering::SeqCst) {
            send_farewell(links, &mut endpoint);
            return;
        }
        let elsewhere = links.elsewhere.get();
        let limit = if elsewhere.is_some() { Duration::from_secs(1) } else { Duration::from_secs(3600) };
        let limit = next.map_or(limit, |n| n.saturating_duration_since(Instant::now()).min(limit));
        let mut fds = vec![endpoint.fd(), links.agent_wake.as_fd(), links.context.event_fd()];
        fds.extend(elsewhere.map(AsFd::as_fd));
        sleep(&fds, limit);
        if let Some(elsewhere) = elsewhere {
            // The rank is also woken without an event, so that it checks its peers.
            elsewhere.has_event();
            elsewhere.wake();
        }
        links.agent_wake.clear();
    }
}

fn send_farewell(links: &Links, endpoint: &mut Endpoint) {
    let Some(message) = links.lock().farewell.take() else { return };
    for _ in 0..FAREWELLS {
        for to in (0..links.addresses.len() as u32).filter(|to| *to != links.me) {
            send(links, endpoint, to, &message);
            // Processed completions free buffers for the next datagram.
            let _ = endpoint.receive(|_, _| {});
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn note(links: &Links, event: AsyncEvent) {
    match event {
        AsyncEvent::Fatal(why) => fatal(links, why),
        AsyncEvent::PortDown(port) if port == links.choice.port => {
            links.lock().port_is_down();
            tracing::warn!("{} went down", links.port());
            links.wake_rank();
        }
        AsyncEvent::PortUp(port) if port == links.choice.port => {
            links.lock().down = None;
            tracing::warn!("{} is up again", links.port());
            // Requests that have failed are posted again.
            links.wake_rank();
        }
        AsyncEvent::PortChanged(port) if port == links.choice.port => {
            links.refresh();
        }
        AsyncEvent::Other(text) => tracing::debug!("{}: {text}", links.choice.device),
        AsyncEvent::PortDown(_) | AsyncEvent::PortUp(_) | AsyncEvent::PortChanged(_) => {}
    }
}

fn fatal(links: &Links, why: String) {
    links.lock().fatal.get_or_insert(why);
    links.wake_rank();
}
