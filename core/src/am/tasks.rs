//! Tasks: futures of this rank that its progress polls until they are ready.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::sync::atomic::AtomicBool;
// Relaxed: the flag is a hint; the mutex publishes the numbers.
use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

use crate::slots::Slots;

type Polled = Pin<Box<dyn Future<Output = ()>>>;

/// The numbers of the tasks that have been woken.
#[derive(Debug, Default)]
struct Woken {
    any: AtomicBool,
    numbers: Mutex<Vec<u64>>,
}

impl Woken {
    fn lock(&self) -> MutexGuard<'_, Vec<u64>> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waker of a task.
struct TaskWaker {
    number: u64,
    /// Whether the number is among the woken ones: however often a task is woken, it is polled once.
    is_queued: AtomicBool,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, AcqRel) {
            self.woken.lock().push(self.number);
            self.woken.any.store(true, Relaxed);
        }
    }
}

struct Task {
    /// `None` while it is being polled.
    future: Option<Polled>,
    waker: Arc<TaskWaker>,
}

/// The tasks of a rank. A task that nothing has woken costs nothing.
#[derive(Default)]
pub(crate) struct Tasks {
    list: RefCell<Slots<Task>>,
    number: Cell<usize>,
    is_polling: Cell<bool>,
    woken: Arc<Woken>,
}

/// Ends a poll of the tasks, also when a task panics.
struct Polling<'a>(&'a Cell<bool>);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

impl Tasks {
    /// Adds a task, which the next turn of progress polls.
    pub(crate) fn add(&self, future: Polled) {
        let mut list = self.list.borrow_mut();
        let (number, woken) = (list.next(), Arc::clone(&self.woken));
        let waker = Arc::new(TaskWaker { number, is_queued: AtomicBool::new(false), woken });
        list.add(Task { future: Some(future), waker: Arc::clone(&waker) });
        self.number.set(self.number.get() + 1);
        waker.wake();
    }

    /// Whether there is any.
    #[inline(always)]
    pub(crate) fn has_any(&self) -> bool {
        self.number.get() != 0
    }

    /// Whether a task is being polled, or has asked for another poll: no event announces that it can go on.
    pub(crate) fn is_polled(&self) -> bool {
        self.is_polling.get() || self.woken.any.load(Relaxed)
    }

    /// Polls the tasks that were woken before, unless this is called inside of a task; returns whether one has ended.
    pub(crate) fn poll(&self) -> bool {
        if !self.woken.any.load(Relaxed) || self.is_polling.replace(true) {
            return false;
        }
        let _polling = Polling(&self.is_polling);
        let numbers = {
            let mut numbers = self.woken.lock();
            self.woken.any.store(false, Relaxed);
            std::mem::take(&mut *numbers)
        };
        let mut any = false;
        for number in numbers {
            let task = self.list.borrow_mut().get_mut(number).and_then(|task| {
                // The poll sees all writes that a thread made before it woke the task again.
                task.waker.is_queued.swap(false, AcqRel);
                Some((task.future.take()?, Waker::from(Arc::clone(&task.waker))))
            });
            let Some((mut future, waker)) = task else { continue };
            let is_ready = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
            let mut list = self.list.borrow_mut();
            match list.get_mut(number) {
                Some(task) if !is_ready => task.future = Some(future),
                Some(_) => {
                    drop(list.remove(number));
                    self.number.set(self.number.get() - 1);
                    any = true;
                }
                // The tasks were dropped meanwhile, and this one, which was not among them, is dropped here.
                None => {}
            }
        }
        any
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        let tasks: Vec<_> = {
            let mut list = self.list.borrow_mut();
            let numbers: Vec<_> = list.iter().map(|(number, _)| number).collect();
            numbers.into_iter().map(|number| list.remove(number)).collect()
        };
        self.number.set(0);
        // The list is not borrowed while a future is dropped, which may call anything.
        drop(tasks);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::task::Poll;

    use super::*;

    /// A task that is polled so often, and counts its polls; it wakes itself twice in each.
    fn busy(polls: &Rc<Cell<u32>>, last: u32) -> Polled {
        let polls = Rc::clone(polls);
        Box::pin(poll_fn(move |context| {
            polls.set(polls.get() + 1);
            context.waker().wake_by_ref();
            context.waker().wake_by_ref();
            if polls.get() < last { Poll::Pending } else { Poll::Ready(()) }
        }))
    }

    #[test]
    fn task_is_polled_once_a_turn_until_it_is_ready() {
        let (tasks, polls) = (Tasks::default(), Rc::new(Cell::new(0)));
        tasks.add(busy(&polls, 3));
        for turn in 1..=3 {
            assert!(tasks.has_any() && tasks.is_polled());
            assert_eq!((tasks.poll(), polls.get()), (turn == 3, turn));
        }
        assert!(!tasks.has_any());
        tasks.poll();
        assert!(!tasks.is_polled());
        assert_eq!(polls.get(), 3);
    }

    #[test]
    fn task_that_waits_is_polled_when_it_is_woken() {
        let (tasks, polls) = (Tasks::default(), Rc::new(Cell::new(0)));
        let waker = Rc::new(Cell::new(None));
        let (own, count) = (Rc::clone(&waker), Rc::clone(&polls));
        tasks.add(Box::pin(poll_fn(move |context| {
            count.set(count.get() + 1);
            own.set(Some(context.waker().clone()));
            if count.get() < 2 { Poll::Pending } else { Poll::Ready(()) }
        })));
        assert!((0..5).all(|_| !tasks.poll()));
        assert_eq!(polls.get(), 1);
        assert!(tasks.has_any() && !tasks.is_polled());
        let waker: Waker = waker.take().expect("it was polled");
        let other = waker.clone();
        std::thread::spawn(move || other.wake()).join().unwrap();
        assert!(tasks.poll());
        // Waking a task that has ended does nothing, even if its slot has a new one.
        tasks.add(busy(&polls, 100));
        waker.wake();
        tasks.poll();
        assert_eq!(polls.get(), 3);
    }

    #[test]
    fn task_is_not_polled_inside_of_a_task_and_may_add_and_drop_others() {
        let (tasks, polls) = (Rc::new(Tasks::default()), Rc::new(Cell::new(0)));
        let (own, count) = (Rc::clone(&tasks), Rc::clone(&polls));
        tasks.add(Box::pin(poll_fn(move |_| {
            own.add(busy(&count, 100));
            assert!(!own.poll() && own.is_polled());
            Poll::Ready(())
        })));
        assert!(tasks.poll());
        tasks.poll();
        assert_eq!(polls.get(), 1);
        let own = Rc::clone(&tasks);
        tasks.add(Box::pin(poll_fn(move |_| {
            own.clear();
            Poll::Pending
        })));
        tasks.poll();
        assert!(!tasks.has_any());
        assert_eq!(Rc::strong_count(&tasks), 1);
    }
}
