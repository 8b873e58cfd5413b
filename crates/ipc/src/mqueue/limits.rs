//! What an ipc namespace lets its queues be (`/proc/sys/fs/mqueue`), and what a queue counts for.

use abi::Result;
use abi::errno::{EINVAL, ENOSPC, EOVERFLOW};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, Ordering};

/// The most that anybody gets (`HARD_MSGMAX`, `HARD_MSGSIZEMAX`).
const HARD_MESSAGES: i64 = 65_536;
const HARD_SIZE: i64 = 16 << 20;
/// `sizeof(struct msg_msg)` and `sizeof(struct posix_msg_tree_node)`: RLIMIT_MSGQUEUE counts them.
const MSG_MSG: u64 = 48;
const TREE_NODE: u64 = 48;

/// What a queue is made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    pub max_messages: usize,
    /// Of the longest message, bytes.
    pub size: usize,
}

/// Whether a caller passes limits (`CAP_SYS_RESOURCE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Privilege {
    None,
    Resource,
}

/// A file of `/proc/sys/fs/mqueue`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    QueuesMax,
    MsgMax,
    MsgSizeMax,
    MsgDefault,
    MsgSizeDefault,
}

impl Setting {
    pub const ALL: [(&'static str, Setting); 5] = [
        ("queues_max", Setting::QueuesMax),
        ("msg_max", Setting::MsgMax),
        ("msgsize_max", Setting::MsgSizeMax),
        ("msg_default", Setting::MsgDefault),
        ("msgsize_default", Setting::MsgSizeDefault),
    ];
    const fn first(self) -> u32 {
        match self {
            Setting::QueuesMax => 256,
            Setting::MsgMax | Setting::MsgDefault => 10,
            Setting::MsgSizeMax | Setting::MsgSizeDefault => 8192,
        }
    }
    /// What may be written to it.
    #[must_use]
    pub const fn range(self) -> RangeInclusive<i64> {
        match self {
            Setting::QueuesMax => i32::MIN as i64..=i32::MAX as i64,
            Setting::MsgMax | Setting::MsgDefault => 1..=HARD_MESSAGES,
            Setting::MsgSizeMax | Setting::MsgSizeDefault => 128..=HARD_SIZE,
        }
    }
}

/// The settings of a namespace, and how many queues it has.
pub struct Limits {
    settings: [AtomicU32; 5],
    queues: AtomicU32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            settings: Setting::ALL.map(|(_, s)| AtomicU32::new(s.first())),
            queues: AtomicU32::new(0),
        }
    }
}

impl Limits {
    #[must_use]
    pub fn get(&self, s: Setting) -> u32 {
        self.settings[s as usize].load(Ordering::Relaxed)
    }
    /// `EINVAL` for what the setting cannot be.
    pub fn set(&self, s: Setting, n: i64) -> Result<()> {
        if !s.range().contains(&n) {
            return Err(EINVAL);
        }
        self.settings[s as usize].store(n as u32, Ordering::Relaxed);
        Ok(())
    }
    /// Counts one more queue; `ENOSPC`.
    pub fn add_queue(&self, p: Privilege) -> Result<()> {
        let most = match p {
            Privilege::None => self.get(Setting::QueuesMax),
            Privilege::Resource => u32::MAX,
        };
        let more = |n: u32| (n < most).then_some(n + 1);
        self.queues
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .map(drop)
            .map_err(|_| ENOSPC)
    }
    pub fn drop_queue(&self) {
        self.queues.fetch_sub(1, Ordering::Relaxed);
    }
    /// What a queue gets that `asked` for a number and a size of messages (`mqueue_get_inode`);
    /// `EINVAL`.
    pub fn attr(&self, asked: Option<(i64, i64)>, p: Privilege) -> Result<Attr> {
        let get = |s| i64::from(self.get(s));
        let (max, size_max) = (get(Setting::MsgMax), get(Setting::MsgSizeMax));
        let (messages, size) = asked.unwrap_or((
            max.min(get(Setting::MsgDefault)),
            size_max.min(get(Setting::MsgSizeDefault)),
        ));
        let (most, longest) = match p {
            Privilege::None => (max, size_max),
            Privilege::Resource => (HARD_MESSAGES, HARD_SIZE),
        };
        if !(1..=most).contains(&messages) || !(1..=longest).contains(&size) {
            return Err(EINVAL);
        }
        Ok(Attr {
            max_messages: messages as usize,
            size: size as usize,
        })
    }
}

impl Attr {
    /// What it counts for RLIMIT_MSGQUEUE, bytes; `EOVERFLOW`.
    pub fn counted(self) -> Result<u64> {
        let n = self.max_messages as u64;
        let nodes = n.min(u64::from(super::PRIO_MAX)) * TREE_NODE + n * MSG_MSG;
        n.checked_mul(self.size as u64)
            .and_then(|bytes| bytes.checked_add(nodes))
            .ok_or(EOVERFLOW)
    }
}
