//! The thread of a client: takes the seat for what has queued up, and for all that takes long.

use std::sync::mpsc::Receiver;

use super::jobs::Job;
use super::seat::Seat;

/// The most calls in one transaction: others wait for its end.
const BATCH: usize = 64;

/// Returns when the client is closed or dropped.
pub(super) fn run(seat: &Seat, jobs: &Receiver<Job>) {
    while let Ok(job) = jobs.recv() {
        let (mut taken, mut calls) = (0, Vec::new());
        let (mut look, mut close) = (false, None);
        for job in std::iter::once(job).chain(jobs.try_iter()) {
            taken += 1;
            match job {
                Job::Verb(call) if call.is_abandoned() => {}
                Job::Verb(call) => calls.push(call),
                Job::Look => look = true,
                Job::WriteBack => {}
                Job::Close(done) => close = Some(done),
            }
            if close.is_some() || calls.len() == BATCH {
                break;
            }
        }
        let mut taken_seat = seat.take();
        let Some(worker) = taken_seat.as_mut() else { return };
        if look {
            worker.let_go();
        }
        let answered = if calls.is_empty() { Vec::new() } else { worker.perform(calls) };
        let is_log_long = worker.is_log_long();
        drop(taken_seat);
        if !is_log_long {
            seat.finished(taken);
        }
        for (call, result) in answered {
            call.finish(result);
        }
        // Nobody waits for it.
        if is_log_long {
            seat.take().iter_mut().for_each(super::worker::Worker::write_back);
            seat.finished(taken);
        }
        if let Some(done) = close {
            leave(seat);
            // Once the file is closed, and can be moved or removed.
            let _told = done.send(());
            return;
        }
    }
    leave(seat);
}

fn leave(seat: &Seat) {
    let worker = seat.take().take();
    if let Some(mut worker) = worker {
        worker.leave();
    }
}
