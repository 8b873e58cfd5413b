//! Sockets of a sandbox: AF_UNIX, AF_INET and AF_INET6 over loopback and by what leads out,
//! AF_PACKET, and of AF_NETLINK routes, sockets and netfilter.
//!
//! Two connected sockets of one namespace are joined in memory: bytes go from the sender's memory
//! into the receiver's ring and from there to the receiver's memory. No packets exist there, unless
//! rules want to see them ([`rules`]); TCP's
//! states are kept only where a program can see them (half close, reset, refused, backlog). What
//! leads out ([`stack`], [`user`], [`host`]) is beside that.
//!
//! All state hangs from a [`NetNamespace`]. Operations never block: `EAGAIN` says "not now", the
//! caller waits on the socket's queue (IN to receive, accept; OUT to send, connect) and tries
//! again. **Sends and receives may be short**: a blocking send on a stream goes on with the rest,
//! and so does MSG_WAITALL. These two loops are [`Socket::send_all`] and [`Socket::receive_all`]: a
//! caller's whole call, which waits as its [`vfs::file::Io`] lets it.
//!
//! # Modules
//!
//! Each stands on those below it, or behind it in its line. Four arrows run upwards, where types
//! hold each other: a namespace has its devices, its stack and the listeners of its ports (`ns` to
//! `devices`, `stack`, `tcp`), and the shared part of a socket has its namespace (`options` to
//! `ns`). All else that a namespace has it knows by what is needed of it: a trait in a module
//! below it. (Methods of a namespace are in the module that they are about.)
//!
//! ```text
//! family                           socket(2), socketpair(2): which family and type does what
//! outside, arrivals                who gets what comes: by the broker, by the stack
//! procnet, sysnet, report          what is told: /proc/net, /sys/class/net, `network show`
//! netlink, packet, unix, raw, udp,
//! host_socket                      what each family does
//! tables                           iptables' socket options: tables of rules
//! socket, ioctl                    the open file of a socket, and its ioctls
//! census                           what sockets there are
//! devices                          devices, addresses and routes, and who is told of changes
//! datagrams                        what UDP, ping and raw have in common
//! rules                            netfilter: what passes inside is packets while there are some
//! loopback                         what passes inside, as frames for packet sockets
//! stack                            the way out by our own packets on the devices of a namespace
//! tcp                              TCP, joined in memory; what it wants of a way out
//! errors                           what is told of what was sent
//! protocol                         the trait of families; what a call brings along
//! route, inet                      routes; options of IP, TCP and UDP
//! ns                               namespaces: what they have, and where an address lies
//! msgqueue, stream                 receive queues and rings
//! lingering                        SO_LINGER: who waits for the last acknowledgement
//! host, user                       the host's network, and the way out by a broker: their channels
//! readiness                        the host's descriptors whose readiness is a socket's
//! bindings                         who has which port, and the connections from it
//! taps, receivers, frames  who looks at frames; who takes datagrams and packets that come
//! unix_names, groups, inflight     abstract names; groups of devices; files on their way
//! options, stamps, peeks           options of all sockets, and the part of one that others share
//! filters, landlock                programs on packets; ports that Landlock's rulesets name
//! work, clock, tcp_memory          one thread for all namespaces; the time; a limit of connections
//! addr, control, interface,
//! ip_packet                        addresses; ancillary data; interfaces; packets as bytes
//! ```
//!
//! # Lock order
//!
//! ```text
//! Socket state (Tcp::state, Udp::state, UnixSock::state; never two of one kind)
//!   → accept queue (Listener::queue)
//!   → port table, abstract names
//!   → receive queue (Half::state, MsgQueue::state, DatagramQueue::state) → application memory (Source, Sink)
//!     → wait queues, the registry of descriptors in flight
//! table of devices → their settings (`devices::conf`)
//! Netlink::pending → receive queue
//! Netlink::listening → netfilter's groups of logs
//! ```
//!
//! Files that travel (SCM_RIGHTS) are dropped outside all of these, through [`NetNamespace`]'s
//! graveyard.
#![forbid(unsafe_code)]

mod addr;
mod arrivals;
mod bindings;
mod census;
mod clock;
pub mod control;
mod datagrams;
pub mod devices;
mod errors;
mod family;
mod fast_open;
mod filters;
mod frames;
mod groups;
pub mod host;
mod host_socket;
mod inet;
mod inflight;
pub mod interface;
mod ioctl;
mod ip_packet;
mod landlock;
mod lingering;
mod loopback;
mod msgqueue;
mod netlink;
mod ns;
mod options;
mod outside;
mod packet;
mod peeks;
pub use filters::{INSN as FILTER_INSN, MOST_INSNS as FILTER_MOST};
pub use options::{
    SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF,
    SO_BINDTODEVICE, SO_PEERCRED, SO_PEERGROUPS, SO_PEERPIDFD,
};
pub use packet::FANOUT_DATA as PACKET_FANOUT_DATA;
pub use procnet::{PROC_NET, PROC_NET_OF_ROOT};
pub use sysnet::{SYS_NET, SYS_NET_STATISTICS};
mod procnet;
mod protocol;
mod raw;
mod readiness;
mod receivers;
pub mod report;
mod route;
mod rules;
mod socket;
mod stack;
mod stamps;
mod stream;
mod sysnet;
mod tables;
mod taps;
mod tcp;
mod tcp_memory;
mod udp;
mod unix;
mod unix_names;
pub mod user;
mod work;

pub use addr::{Endpoint, unix_path};
pub use bindings::PortRange;
pub use control::{Control, Ucred};
pub use devices::{ConfOf, ConfVersion, Setting, TunFile};
pub use family::{socket, socketpair};
pub use inet::{IP_MSFILTER, MCAST_MSFILTER};
pub use lingering::Lingering;
pub use netlink::Inbox as NetlinkInbox;
pub use ns::{Link, NetNamespace};
pub use protocol::{Answer, Block, Caller, NamespaceOf, PathNames, Received};
pub use socket::Socket;
pub use tables::{OldCounters, TableChange, TableQuery};
pub use tcp::{default_congestion, set_default_congestion};

/// Numbers of the socket interface (`<sys/socket.h>` and the kernel's headers).
pub mod sys {
    pub const AF_UNSPEC: u16 = 0;
    pub const AF_UNIX: u16 = 1;
    pub const AF_INET: u16 = 2;
    pub const AF_INET6: u16 = 10;
    pub const AF_NETLINK: u16 = 16;
    pub const AF_PACKET: u16 = 17;

    pub const SOCK_STREAM: u32 = 1;
    pub const SOCK_DGRAM: u32 = 2;
    pub const SOCK_RAW: u32 = 3;
    pub const SOCK_RDM: u32 = 4;
    pub const SOCK_SEQPACKET: u32 = 5;

    pub const IPPROTO_IP: i32 = 0;
    pub const IPPROTO_ICMP: i32 = 1;
    pub const IPPROTO_TCP: i32 = 6;
    pub const IPPROTO_UDP: i32 = 17;
    pub const IPPROTO_IPV6: i32 = 41;
    pub const IPPROTO_ICMPV6: i32 = 58;

    pub const SOL_SOCKET: i32 = 1;
    pub const SOL_IP: i32 = 0;
    pub const SOL_TCP: i32 = 6;
    pub const SOL_UDP: i32 = 17;
    pub const SOL_IPV6: i32 = 41;
    pub const SOL_PACKET: i32 = 263;
    pub const SOL_NETLINK: i32 = 270;

    pub const MSG_OOB: u32 = 1;
    pub const MSG_PEEK: u32 = 2;
    pub const MSG_DONTROUTE: u32 = 4;
    pub const MSG_CTRUNC: u32 = 8;
    pub const MSG_TRUNC: u32 = 0x20;
    pub const MSG_DONTWAIT: u32 = 0x40;
    pub const MSG_EOR: u32 = 0x80;
    pub const MSG_WAITALL: u32 = 0x100;
    pub const MSG_CONFIRM: u32 = 0x800;
    pub const MSG_ERRQUEUE: u32 = 0x2000;
    pub const MSG_NOSIGNAL: u32 = 0x4000;
    pub const MSG_MORE: u32 = 0x8000;
    pub const MSG_FASTOPEN: u32 = 0x2000_0000;
    pub const MSG_CMSG_CLOEXEC: u32 = 0x4000_0000;

    pub const SHUT_RD: u32 = 0;
    pub const SHUT_WR: u32 = 1;
    pub const SHUT_RDWR: u32 = 2;

    pub const SCM_RIGHTS: i32 = 1;
    pub const SCM_CREDENTIALS: i32 = 2;
    pub const SCM_PIDFD: i32 = 4;
    /// The most descriptors in one message.
    pub const SCM_MAX_FD: usize = 253;
}

#[cfg(test)]
mod testing;
