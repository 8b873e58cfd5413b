//! `timerfd_create(2)`.

use crate::anon_stat;
use crate::timer::{Clock, Expiry, From, Rearm, Setting, Timer, TimerService};
use abi::errno::{EAGAIN, EINVAL, ENOTTY};
use abi::{Result, Va};
use parking_lot::Mutex;
use std::any::Any;
use std::sync::{Arc, Weak};
use vfs::file::IoctlContext;
use vfs::{File, FileOps, Sink, Stat};
use wait::{Events, WaitQueue};

pub const TFD_TIMER_ABSTIME: u32 = 1;
pub const TFD_TIMER_CANCEL_ON_SET: u32 = 2;
const TFD_IOC_SET_TICKS: u32 = 0x4008_5400;

/// A timer as a file.
pub struct TimerFd {
    timer: Timer,
    clock_id: i32,
    /// Taken before the timer's own lock.
    state: Mutex<State>,
    queue: WaitQueue,
}

#[derive(Default)]
struct State {
    /// Expiries that no read took yet.
    ticks: u64,
    /// The arming that `ticks` belongs to.
    generation: u64,
    settime_flags: u32,
}

impl TimerFd {
    /// `clock_id`: CLOCK_REALTIME, _MONOTONIC, _BOOTTIME or an ALARM one; otherwise `EINVAL`.
    pub fn new(service: &Arc<TimerService>, clock_id: i32) -> Result<Arc<TimerFd>> {
        let clock = Clock::from_id(clock_id)
            .filter(|_| clock_id != 11)
            .ok_or(EINVAL)?;
        Ok(Arc::new_cyclic(|me: &Weak<TimerFd>| {
            let me = me.clone();
            TimerFd {
                timer: Timer::new(service, clock, move |e| {
                    if let Some(t) = me.upgrade() {
                        t.expired(e);
                    }
                    Rearm::Later
                }),
                clock_id,
                state: Mutex::new(State::default()),
                queue: WaitQueue::new(),
            }
        }))
    }

    /// Its `clockid_t`.
    #[must_use]
    pub fn clock_id(&self) -> i32 {
        self.clock_id
    }

    fn expired(&self, e: Expiry) {
        {
            let mut s = self.state.lock();
            if s.generation != e.generation {
                return;
            }
            s.ticks = s.ticks.wrapping_add(e.count);
        }
        self.queue.notify(Events::READABLE);
    }

    /// `timerfd_settime(2)`: gives the old setting. The caller has checked the times.
    pub fn set(&self, new: Setting, flags: u32) -> Result<Setting> {
        if flags & !(TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET) != 0 {
            return Err(EINVAL);
        }
        let from = if flags & TFD_TIMER_ABSTIME != 0 {
            From::Epoch
        } else {
            From::Now
        };
        let mut s = self.state.lock();
        let (old, generation) = self.timer.set(new, from);
        s.ticks = 0;
        s.generation = generation;
        s.settime_flags = flags;
        Ok(old)
    }

    /// `timerfd_gettime(2)`.
    #[must_use]
    pub fn get(&self) -> Setting {
        self.timer.get()
    }
}

impl FileOps for TimerFd {
    fn read(&self, _: &File, dst: &mut dyn Sink, _: u64) -> Result<usize> {
        if dst.remaining() < 8 {
            return Err(EINVAL);
        }
        let n = {
            let mut s = self.state.lock();
            if s.ticks == 0 {
                return Err(EAGAIN);
            }
            std::mem::take(&mut s.ticks).wrapping_add(self.timer.rearm())
        };
        dst.put(&n.to_le_bytes())
    }
    fn ignores_seek(&self) -> bool {
        true
    }
    fn stat(&self) -> Result<Stat> {
        Ok(anon_stat())
    }
    fn poll(&self, _: &File, mask: Events) -> Events {
        if self.state.lock().ticks > 0 {
            mask & Events::IN
        } else {
            Events::empty()
        }
    }
    fn wait_queue(&self) -> Option<&WaitQueue> {
        Some(&self.queue)
    }
    fn ioctl(&self, _: &File, cx: &dyn IoctlContext, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != TFD_IOC_SET_TICKS {
            return Err(ENOTTY);
        }
        let mut b = [0; 8];
        cx.copy_in(Va(arg), &mut b)?;
        let ticks = u64::from_le_bytes(b);
        if ticks == 0 {
            return Err(EINVAL);
        }
        self.state.lock().ticks = ticks;
        self.queue.notify(Events::READABLE);
        Ok(0)
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn describe(&self) -> String {
        "anon_inode:[timerfd]".into()
    }
    fn fdinfo(&self) -> String {
        let (ticks, flags) = {
            let s = self.state.lock();
            (s.ticks, s.settime_flags)
        };
        let t = self.get();
        let pair = |n: i64| (n / 1_000_000_000, n % 1_000_000_000);
        format!(
            "clockid: {}\nticks: {ticks}\nsettime flags: {flags:02o}\nit_value: {:?}\nit_interval: {:?}\n",
            self.clock_id,
            pair(t.value),
            pair(t.interval)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use wait::block_until;

    #[test]
    fn reads_count_expiries() {
        let svc = TimerService::new();
        assert_eq!(TimerFd::new(&svc, 2).err(), Some(EINVAL));
        let t = TimerFd::new(&svc, 1).unwrap();
        let f = file(t.clone(), 2);
        assert_eq!(read(&f, 8), Err(EAGAIN));
        t.set(
            Setting {
                value: 1_000_000,
                interval: 1_000_000,
            },
            0,
        )
        .unwrap();
        let me = Me::new();
        let wait = || {
            block_until(&me, &[(t.wait_queue().unwrap(), Events::IN)], None, || {
                read(&f, 8)
            })
            .unwrap()
        };
        assert!(u64::from_le_bytes(wait().try_into().unwrap()) >= 1);
        std::thread::sleep(std::time::Duration::from_millis(4));
        assert!(u64::from_le_bytes(wait().try_into().unwrap()) >= 3);
        let old = t.set(Setting::default(), 0).unwrap();
        assert_eq!(old.interval, 1_000_000);
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert_eq!(read(&f, 8), Err(EAGAIN));
        // A time in the past expires at once.
        t.set(
            Setting {
                value: 1,
                interval: 0,
            },
            TFD_TIMER_ABSTIME,
        )
        .unwrap();
        assert_eq!(wait(), 1u64.to_le_bytes());
    }
}
