//! The threads that modules run on. Each module has a lane of its own, a bounded queue that a few threads serve at a time,
//! and lanes take turns: a module that is slow, or never ends, makes only its own callers wait.
//!
//! The operating system shares the processor among the threads, of which there are more than processors; what stops a call
//! is its deadline, elsewhere.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;

use levada_extension::{ModuleBusy, ModuleJob};
use levada_model::limits::MODULE_QUEUE_JOBS_MAX;
use parking_lot::{Condvar, Mutex};

/// Far more than wasm may use of it.
const STACK_BYTES: usize = 4 << 20;

thread_local! {
    static WORKS: Cell<bool> = const { Cell::new(false) };
}

/// The threads.
pub(crate) struct Workers {
    shared: Arc<Shared>,
}

/// A module's lane; its end forgets the lane's waiting jobs.
pub(crate) struct Lane {
    id: u64,
    /// Whether its queue is narrow, so that who says the same again need not look at the board.
    is_narrow: AtomicBool,
    shared: Arc<Shared>,
}

struct Shared {
    threads_max: usize,
    width: usize,
    board: Mutex<Board>,
    work: Condvar,
}

#[derive(Default)]
struct Board {
    lanes: BTreeMap<u64, Queue>,
    next_lane: u64,
    /// Lanes with a job that may run now, next first; none is in it twice.
    turns: VecDeque<u64>,
    threads: usize,
    /// Threads that wait for a turn, or are on their way to it.
    idle: usize,
    running: usize,
    stopping: bool,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<ModuleJob>,
    running: usize,
    /// Its last call took too long: one thread is enough for it.
    narrow: bool,
    in_turns: bool,
}

impl Workers {
    pub(crate) fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let (threads_max, width) = ((4 * processors).max(16), processors.max(2));
        let shared = Shared { threads_max, width, board: Mutex::default(), work: Condvar::new() };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn lane(&self) -> Lane {
        let mut board = self.shared.board.lock();
        let id = board.next_lane;
        board.next_lane += 1;
        board.lanes.insert(id, Queue::default());
        Lane { id, is_narrow: AtomicBool::new(false), shared: Arc::clone(&self.shared) }
    }

    /// Ends the threads after the jobs that they run; those that wait are dropped, and no more are taken.
    pub(crate) fn stop(&self) {
        let mut board = self.shared.board.lock();
        board.stopping = true;
        let waiting: Vec<_> = board.lanes.values_mut().flat_map(|queue| queue.jobs.drain(..)).collect();
        self.shared.work.notify_all();
        drop(board);
        // Outside the lock: what a job owns may end its lane.
        drop(waiting);
    }

    /// Jobs that run, and that wait.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let board = self.shared.board.lock();
        (board.running, board.lanes.values().map(|queue| queue.jobs.len()).sum())
    }
}

impl Lane {
    /// Queues a job.
    pub(crate) fn run(&self, job: ModuleJob) -> Result<(), ModuleBusy> {
        let mut board = self.shared.board.lock();
        let board = &mut *board;
        if board.stopping {
            return Err(ModuleBusy { reason: "the host ends".to_owned() });
        }
        let queue = &board.lanes[&self.id];
        if queue.jobs.len() >= MODULE_QUEUE_JOBS_MAX {
            return Err(ModuleBusy { reason: format!("{MODULE_QUEUE_JOBS_MAX} jobs wait for the module already") });
        }
        if board.threads == 0 {
            let begun = self.shared.begin(board);
            begun.map_err(|error| ModuleBusy { reason: format!("there is no thread for it: {error}") })?;
        }
        let queue = board.lanes.get_mut(&self.id).expect("a lane is there as long as its handle");
        queue.jobs.push_back(job);
        self.shared.line_up(board, self.id);
        self.shared.call_threads(board);
        Ok(())
    }

    /// Runs a job and waits for what it gives; in place if this thread is one of a host's.
    pub(crate) fn call<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> Result<R, ModuleBusy> {
        if WORKS.get() {
            return Ok(job());
        }
        let (sender, receiver) = sync_channel(1);
        self.run(Box::new(move || drop(sender.send(job()))))?;
        receiver.recv().map_err(|_| ModuleBusy { reason: "the host ended before the call".to_owned() })
    }

    /// Tells whether the module keeps to its time; if not, it has one thread until it does.
    pub(crate) fn kept_time(&self, kept: bool) {
        if self.is_narrow.load(Ordering::Relaxed) != kept {
            return;
        }
        let mut board = self.shared.board.lock();
        if let Some(queue) = board.lanes.get_mut(&self.id) {
            queue.narrow = !kept;
            // Under the lock, so that the two never differ for good.
            self.is_narrow.store(!kept, Ordering::Relaxed);
        }
        self.shared.line_up(&mut board, self.id);
        self.shared.call_threads(&mut board);
    }
}

impl Shared {
    /// Begins a thread.
    fn begin(self: &Arc<Self>, board: &mut Board) -> io::Result<()> {
        let shared = Arc::clone(self);
        let builder = thread::Builder::new().name("levada-module".to_owned()).stack_size(STACK_BYTES);
        builder.spawn(move || shared.serve())?;
        board.threads += 1;
        board.idle += 1;
        Ok(())
    }

    /// Sees to it that somebody takes each turn: wakes one who waits, and begins a thread where fewer wait than there are
    /// turns. Who was woken counts as waiting until it has the board, and so does its turn.
    fn call_threads(self: &Arc<Self>, board: &mut Board) {
        if board.turns.is_empty() {
            return;
        }
        if board.turns.len() > board.idle && board.threads < self.threads_max {
            // Where that fails, the threads that there are will do it.
            let _ = self.begin(board);
        }
        self.work.notify_one();
    }

    /// Gives a lane a turn if it has a job that may run.
    fn line_up(&self, board: &mut Board, id: u64) {
        let Some(queue) = board.lanes.get_mut(&id) else { return };
        let width = if queue.narrow { 1 } else { self.width };
        if !queue.in_turns && !queue.jobs.is_empty() && queue.running < width {
            queue.in_turns = true;
            board.turns.push_back(id);
        }
    }

    fn serve(self: &Arc<Self>) {
        WORKS.set(true);
        let mut board = self.board.lock();
        board.idle -= 1;
        while !board.stopping {
            let Some((id, job)) = next_job(&mut board) else {
                board.idle += 1;
                self.work.wait(&mut board);
                board.idle -= 1;
                continue;
            };
            self.line_up(&mut board, id);
            self.call_threads(&mut board);
            board.running += 1;
            drop(board);
            // A panic is a bug of the host or of whoever made the job, and that job's alone: its channel closes.
            if catch_unwind(AssertUnwindSafe(job)).is_err() {
                tracing::error!("a job on a module's thread panicked");
            }
            board = self.board.lock();
            board.running -= 1;
            if let Some(queue) = board.lanes.get_mut(&id) {
                queue.running -= 1;
            }
            self.line_up(&mut board, id);
        }
    }
}

fn next_job(board: &mut Board) -> Option<(u64, ModuleJob)> {
    while let Some(id) = board.turns.pop_front() {
        let Some(queue) = board.lanes.get_mut(&id) else { continue };
        queue.in_turns = false;
        if let Some(job) = queue.jobs.pop_front() {
            queue.running += 1;
            return Some((id, job));
        }
    }
    None
}

impl Drop for Lane {
    fn drop(&mut self) {
        let queue = self.shared.board.lock().lanes.remove(&self.id);
        // Outside the lock: what a job owns may end another lane.
        drop(queue);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_job_does_not_wait_behind_the_one_that_the_only_idle_thread_was_woken_for() {
        for _ in 0..50 {
            let workers = Workers::new();
            let (one, other) = (workers.lane(), workers.lane());
            one.call(|| ()).expect("there is room");
            while workers.shared.board.lock().idle == 0 {
                thread::yield_now();
            }
            // The first job lasts until the second has run.
            let (sender, receiver) = channel();
            let (done, is_done) = channel();
            let first = move || done.send(receiver.recv_timeout(LONG)).expect("the test listens");
            one.run(Box::new(first)).expect("there is room");
            let second = move || sender.send(()).expect("the first listens");
            other.run(Box::new(second)).expect("there is room");
            assert_eq!(is_done.recv().expect("it runs"), Ok(()));
            workers.stop();
        }
    }

    #[test]
    fn a_lane_that_keeps_its_time_again_is_wide_again() {
        let workers = Workers::new();
        let lane = workers.lane();
        lane.kept_time(false);
        let (sender, receiver) = channel();
        let (done, is_done) = channel();
        let first = move || done.send(receiver.recv_timeout(LONG)).expect("the test listens");
        lane.run(Box::new(first)).expect("there is room");
        let second = move || sender.send(()).expect("the first listens");
        lane.run(Box::new(second)).expect("there is room");
        while workers.usage() != (1, 1) {
            thread::yield_now();
        }
        lane.kept_time(true);
        assert_eq!(is_done.recv().expect("it runs"), Ok(()), "the second runs beside the first");
        workers.stop();
    }
}
