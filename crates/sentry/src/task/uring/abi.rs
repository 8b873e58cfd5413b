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

/// Numbers of operations (`enum io_uring_op`, without `IORING_OP_`).
pub mod op {
    pub const NOP: u8 = 0;
    pub const READV: u8 = 1;
    pub const WRITEV: u8 = 2;
    pub const FSYNC: u8 = 3;
    pub const READ_FIXED: u8 = 4;
    pub const WRITE_FIXED: u8 = 5;
    pub const POLL_ADD: u8 = 6;
    pub const POLL_REMOVE: u8 = 7;
    pub const SYNC_FILE_RANGE: u8 = 8;
    pub const SENDMSG: u8 = 9;
    pub const RECVMSG: u8 = 10;
    pub const TIMEOUT: u8 = 11;
    pub const TIMEOUT_REMOVE: u8 = 12;
    pub const ACCEPT: u8 = 13;
    pub const ASYNC_CANCEL: u8 = 14;
    pub const LINK_TIMEOUT: u8 = 15;
    pub const CONNECT: u8 = 16;
    pub const FALLOCATE: u8 = 17;
    pub const OPENAT: u8 = 18;
    pub const CLOSE: u8 = 19;
    pub const FILES_UPDATE: u8 = 20;
    pub const STATX: u8 = 21;
    pub const READ: u8 = 22;
    pub const WRITE: u8 = 23;
    pub const FADVISE: u8 = 24;
    pub const MADVISE: u8 = 25;
    pub const SEND: u8 = 26;
    pub const RECV: u8 = 27;
    pub const OPENAT2: u8 = 28;
    pub const EPOLL_CTL: u8 = 29;
    pub const SPLICE: u8 = 30;
    pub const PROVIDE_BUFFERS: u8 = 31;
    pub const REMOVE_BUFFERS: u8 = 32;
    pub const TEE: u8 = 33;
    pub const SHUTDOWN: u8 = 34;
    pub const RENAMEAT: u8 = 35;
    pub const UNLINKAT: u8 = 36;
    pub const MKDIRAT: u8 = 37;
    pub const SYMLINKAT: u8 = 38;
    pub const LINKAT: u8 = 39;
    pub const MSG_RING: u8 = 40;
    pub const FSETXATTR: u8 = 41;
    pub const SETXATTR: u8 = 42;
    pub const FGETXATTR: u8 = 43;
    pub const GETXATTR: u8 = 44;
    pub const SOCKET: u8 = 45;
    pub const URING_CMD: u8 = 46;
    pub const SEND_ZC: u8 = 47;
    pub const SENDMSG_ZC: u8 = 48;
    pub const READ_MULTISHOT: u8 = 49;
    pub const WAITID: u8 = 50;
    pub const FUTEX_WAIT: u8 = 51;
    pub const FUTEX_WAKE: u8 = 52;
    pub const FUTEX_WAITV: u8 = 53;
    pub const FIXED_FD_INSTALL: u8 = 54;
    pub const FTRUNCATE: u8 = 55;
    pub const BIND: u8 = 56;
    pub const LISTEN: u8 = 57;
    pub const LAST: u8 = 58;
}

/// Whether what is linked behind an operation begins although it failed: Linux does not fail those
/// of fsync, sync_file_range, fallocate, statx, madvise, shutdown, paths, xattrs and ftruncate.
#[must_use]
pub fn keeps_links(opcode: u8) -> bool {
    matches!(
        opcode,
        op::FSYNC
            | op::SYNC_FILE_RANGE
            | op::FALLOCATE
            | op::STATX
            | op::MADVISE
            | op::SHUTDOWN..=op::LINKAT
            | op::FSETXATTR..=op::GETXATTR
            | op::FTRUNCATE
    )
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
