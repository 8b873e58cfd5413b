//! What waits for an answer: events of permission (`fanotify_get_response`,
//! `process_access_response`).
//!
//! A question is in the queue, then read, then answered. Who asked takes the answer away; where it
//! is killed before, a question that was read stays until it is answered, to no effect.

use super::events::Event;
use super::{FAN_CLASS_PRE_CONTENT, FAN_ENABLE_AUDIT, Fanotify, State};
use abi::errno::{
    EAGAIN, EBUSY, EDQUOT, EFAULT, EINVAL, EIO, ENOENT, ENOMEM, ENOSPC, EPERM, ETXTBSY,
};
use abi::{Errno, Result};
use vfs::Source;
use wait::{Blocker, Events, UntilKilled, block_until};

const FAN_ALLOW: u32 = 1;
const FAN_DENY: u32 = 2;
const FAN_AUDIT: u32 = 0x10;
const FAN_INFO: u32 = 0x20;
/// Where an answer has an errno.
const ERRNO_SHIFT: u32 = 24;
const VALID: u32 = FAN_ALLOW | FAN_DENY | FAN_AUDIT | FAN_INFO | 0xff << ERRNO_SHIFT;
/// `struct fanotify_response`, and `struct fanotify_response_info_audit_rule`.
const RESPONSE: usize = 8;
const RULE: usize = 16;

/// Where a question is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Question {
    Queued,
    Read,
    Answered(Result<()>),
}

impl State {
    /// A question leaves the queue.
    pub(super) fn is_read(&mut self, n: u64) {
        if let Some(q) = self.questions.get_mut(&n) {
            *q = Question::Read;
        }
    }
    fn answer(&mut self, n: u64, answer: Result<()>) {
        self.read.retain(|(_, m)| *m != n);
        if let Some(q) = self.questions.get_mut(&n) {
            *q = Question::Answered(answer);
        }
    }
}

impl Fanotify {
    /// Asks, and waits for the answer.
    pub(super) fn question(&self, e: Event, b: &dyn Blocker) -> Result<()> {
        let n = {
            let mut s = self.state.lock();
            if s.closed {
                return Ok(());
            }
            if s.events.len() >= self.most {
                s.overflow();
                drop(s);
                self.queue.notify(Events::READABLE);
                return Ok(());
            }
            // (What is forbidden is not lost: nothing tells of it.)
            if !s.pays_for(e.memory()) {
                return Err(ENOMEM);
            }
            let n = s.put(e);
            s.questions.insert(n, Question::Queued);
            n
        };
        self.queue.notify(Events::READABLE);
        let answer = block_until(
            &UntilKilled(b),
            &[(&self.answers, Events::IN)],
            None,
            || {
                let mut s = self.state.lock();
                match s.questions.get(&n) {
                    Some(Question::Answered(r)) => {
                        let r = *r;
                        s.questions.remove(&n);
                        // (May be `EAGAIN`.)
                        Ok(r)
                    }
                    Some(_) => Err(EAGAIN),
                    None => Ok(Ok(())),
                }
            },
        );
        answer.unwrap_or_else(|killed| {
            let gone = {
                let mut s = self.state.lock();
                s.questions.remove(&n);
                s.take(n)
            };
            drop(gone);
            Err(killed)
        })
    }

    /// A question that was read is told by this descriptor.
    pub(super) fn is_told(&self, n: u64, fd: i32) {
        let mut s = self.state.lock();
        if fd >= 0 && !s.closed {
            s.read.push((fd, n));
        }
    }

    /// It could not be told.
    pub(super) fn deny(&self, n: u64) {
        self.state.lock().answer(n, Err(EPERM));
        self.answers.notify(Events::IN);
    }

    /// `write(2)` of an answer.
    pub(super) fn answer(&self, src: &mut dyn Source) -> Result<usize> {
        let len = src.remaining();
        if len < RESPONSE {
            return Err(EINVAL);
        }
        let mut head = [0; RESPONSE];
        take(src, &mut head)?;
        let [fd, response] = [0, 4].map(|at| u32::from_le_bytes(word(&head, at)));
        let (fd, answer) = (fd as i32, self.decode(response)?);
        let mut done = RESPONSE;
        if response & FAN_INFO != 0 {
            check_rule(src, len - RESPONSE)?;
            done += RULE;
            if fd == -1 {
                return Ok(done);
            }
        }
        if fd < 0 {
            return Err(EINVAL);
        }
        {
            let mut s = self.state.lock();
            let asked = s.read.iter().find(|(f, _)| *f == fd);
            let n = asked.map(|(_, n)| *n).ok_or(ENOENT)?;
            s.answer(n, answer);
        }
        self.answers.notify(Events::IN);
        Ok(done)
    }

    /// What an answer says, if it is one.
    fn decode(&self, response: u32) -> Result<Result<()>> {
        let errno = response >> ERRNO_SHIFT;
        if response & !VALID != 0 {
            return Err(EINVAL);
        }
        let answer = match (response & (FAN_ALLOW | FAN_DENY), errno) {
            (FAN_ALLOW, 0) => Ok(()),
            (FAN_DENY, 0) => Err(EPERM),
            (FAN_DENY, n) if self.flags & FAN_CLASS_PRE_CONTENT != 0 => Err(refusal(n)?),
            _ => return Err(EINVAL),
        };
        if response & FAN_AUDIT != 0 && self.flags & FAN_ENABLE_AUDIT == 0 {
            return Err(EINVAL);
        }
        Ok(answer)
    }

    /// The last descriptor goes: what was asked is allowed.
    pub(super) fn close(&self) {
        {
            let mut s = self.state.lock();
            s.closed = true;
            s.read.clear();
            for q in s.questions.values_mut() {
                if !matches!(q, Question::Answered(_)) {
                    *q = Question::Answered(Ok(()));
                }
            }
        }
        self.answers.notify(Events::IN);
    }
}

/// The errors that an answer may give.
fn refusal(n: u32) -> Result<Errno> {
    const ALL: [Errno; 7] = [EIO, EPERM, EBUSY, ETXTBSY, EAGAIN, ENOSPC, EDQUOT];
    let known = ALL.into_iter().find(|e| e.raw() as u32 == n);
    known.ok_or(EINVAL)
}

fn word(b: &[u8], at: usize) -> [u8; 4] {
    [b[at], b[at + 1], b[at + 2], b[at + 3]]
}

fn take(src: &mut dyn Source, to: &mut [u8]) -> Result<()> {
    match src.take(to)? {
        n if n == to.len() => Ok(()),
        _ => Err(EFAULT),
    }
}

/// What an audit's log would be told of the answer. There is none.
fn check_rule(src: &mut dyn Source, len: usize) -> Result<()> {
    if len != RULE {
        return Err(EINVAL);
    }
    let mut rule = [0; RULE];
    take(src, &mut rule)?;
    // FAN_RESPONSE_INFO_AUDIT_RULE, no padding, its length.
    let fine = rule[..4] == [1, 0, RULE as u8, 0];
    fine.then_some(()).ok_or(EINVAL)
}
