//! Words and structs of `include/uapi/linux/io_uring.h`.

use bitflags::bitflags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct io_uring_sqe`, without what 128-byte entries have behind it.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub ioprio: u16,
    pub fd: i32,
    /// `off`, `addr2`, `cmd_op` with padding.
    pub off: u64,
    /// `addr`, `splice_off_in`, `level` and `optname`.
    pub addr: u64,
    pub len: u32,
    /// `rw_flags` and all its other names.
    pub op_flags: u32,
    pub user_data: u64,
    /// `buf_index`, `buf_group`.
    pub buf_index: u16,
    pub personality: u16,
    /// `splice_fd_in`, `file_index`, `addr_len` with padding, `optlen`.
    pub file_index: u32,
    /// `addr3`, `optval`.
    pub addr3: u64,
    pub pad: u64,
}

impl Sqe {
    #[must_use]
    pub fn has(&self, flag: SqeFlags) -> bool {
        SqeFlags::from_bits_retain(self.flags).contains(flag)
    }
}

/// `struct io_uring_cqe`, and what those of 32 bytes have besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cqe {
    pub user_data: u64,
    pub res: i32,
    pub flags: u32,
    pub extra: [u64; 2],
}

bitflags! {
    /// `IOSQE_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct SqeFlags: u8 {
        const FIXED_FILE = 1;
        const IO_DRAIN = 2;
        const IO_LINK = 4;
        const IO_HARDLINK = 8;
        const ASYNC = 0x10;
        const BUFFER_SELECT = 0x20;
        const CQE_SKIP_SUCCESS = 0x40;
    }
}

bitflags! {
    /// `IORING_SETUP_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Setup: u32 {
        const IOPOLL = 1;
        const SQPOLL = 1 << 1;
        const SQ_AFF = 1 << 2;
        const CQSIZE = 1 << 3;
        const CLAMP = 1 << 4;
        const ATTACH_WQ = 1 << 5;
        const R_DISABLED = 1 << 6;
        const SUBMIT_ALL = 1 << 7;
        const COOP_TASKRUN = 1 << 8;
        const TASKRUN_FLAG = 1 << 9;
        const SQE128 = 1 << 10;
        const CQE32 = 1 << 11;
        const SINGLE_ISSUER = 1 << 12;
        const DEFER_TASKRUN = 1 << 13;
        const NO_SQARRAY = 1 << 16;
    }
}

bitflags! {
    /// `IORING_ENTER_*`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Enter: u32 {
        const GETEVENTS = 1;
        const SQ_WAKEUP = 2;
        const SQ_WAIT = 4;
        const EXT_ARG = 8;
        const REGISTERED_RING = 16;
        const ABS_TIMER = 32;
    }
}

/// `IORING_FEAT_*` that are kept: of Linux 6.12's all but `RECVSEND_BUNDLE`.
pub const FEATURES: u32 = 0x3fff | 1 << 15;

/// `IORING_SQ_*`, of the submission ring's flags.
pub const SQ_NEED_WAKEUP: u32 = 1;
pub const SQ_CQ_OVERFLOW: u32 = 2;
pub const SQ_TASKRUN: u32 = 4;
/// `IORING_CQ_EVENTFD_DISABLED`, of the completion ring's flags.
pub const CQ_EVENTFD_DISABLED: u32 = 1;

/// `IORING_CQE_F_*`.
pub const CQE_BUFFER: u32 = 1;
pub const CQE_MORE: u32 = 2;
pub const CQE_SOCK_NONEMPTY: u32 = 4;
pub const CQE_NOTIF: u32 = 8;
/// Where a buffer's id begins (`IORING_CQE_BUFFER_SHIFT`).
pub const CQE_BUFFER_SHIFT: u32 = 16;

/// `IORING_FILE_INDEX_ALLOC`.
pub const FILE_INDEX_ALLOC: u32 = u32::MAX;

/// `IORING_MAX_ENTRIES`, `IORING_MAX_CQ_ENTRIES`.
pub const MAX_ENTRIES: u32 = 32768;
pub const MAX_CQ_ENTRIES: u32 = 2 * MAX_ENTRIES;

/// `struct io_sqring_offsets`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub flags: u32,
    pub dropped: u32,
    pub array: u32,
    pub resv1: u32,
    pub user_addr: u64,
}

/// `struct io_cqring_offsets`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CqOffsets {
    pub head: u32,
    pub tail: u32,
    pub ring_mask: u32,
    pub ring_entries: u32,
    pub overflow: u32,
    pub cqes: u32,
    pub flags: u32,
    pub resv1: u32,
    pub user_addr: u64,
}

/// `struct io_uring_params`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Params {
    pub sq_entries: u32,
    pub cq_entries: u32,
    pub flags: u32,
    pub sq_thread_cpu: u32,
    pub sq_thread_idle: u32,
    pub features: u32,
    pub wq_fd: u32,
    pub resv: [u32; 3],
    pub sq_off: SqOffsets,
    pub cq_off: CqOffsets,
}

/// Operations that others know by number.
pub const WAITID: u8 = 50;
pub const FUTEX_WAIT: u8 = 51;
pub const FUTEX_WAITV: u8 = 53;

/// Whether what is linked behind an operation begins although it failed: Linux does not fail those
/// of fsync, sync_file_range, fallocate, statx, madvise, shutdown, paths, xattrs and ftruncate.
#[must_use]
pub fn keeps_links(opcode: u8) -> bool {
    matches!(opcode, 3 | 8 | 17 | 21 | 25 | 34..=39 | 41..=44 | 55)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structs_are_as_large_as_linuxs() {
        assert_eq!(size_of::<Sqe>(), 64);
        assert_eq!(size_of::<Params>(), 120);
    }
}
