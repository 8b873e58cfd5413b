//! The extension headers of IPv6 (RFC 8200 4), and the options of IPv4.

use super::wire::{be16, be32};

/// Linux's `max_dst_opts_number`, and the most headers that are walked.
const MOST: usize = 8;

/// A place of a packet that is not as it should be, for ICMP's "parameter problem".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Problem {
    pub code: u8,
    /// From the packet's start.
    pub pointer: u32,
    /// Whether it is told even where all were meant (RFC 4443 2.4 e).
    pub even_to_all: bool,
}

impl Problem {
    fn new(code: u8, pointer: usize) -> Problem {
        Problem {
            code,
            pointer: pointer as u32,
            even_to_all: false,
        }
    }
}

/// A header field that is wrong, and RFC 8200's other codes.
const FIELD: u8 = 0;
const NEXT_HEADER: u8 = 1;
const OPTION: u8 = 2;

/// Where the walk has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Walk {
    /// At the transport's header. `named`: where the field is that names the protocol.
    Transport {
        protocol: u8,
        at: usize,
        named: usize,
    },
    Fragment(Fragment),
    /// It is dropped without a word.
    Drop,
    /// It is cut.
    Cut,
    Refuse(Problem),
}

/// A fragment header and what is around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fragment {
    /// Where it is, and where the field that names it.
    pub at: usize,
    pub named: usize,
    pub next: u8,
    pub offset: usize,
    pub more: bool,
    pub id: u32,
}

/// Whether another fragment header may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fragments {
    Possible,
    /// The packet has been put together.
    Done,
}

/// Walks the headers of an IPv6 packet, of which the first 40 bytes are there.
pub(super) fn walk(b: &[u8], fragments: Fragments) -> Walk {
    let (mut next, mut named, mut at) = (b[6], 6, 40);
    for _ in 0..=MOST {
        let is_known = matches!(next, 0 | 43 | 44 | 60);
        if !is_known {
            return Walk::Transport {
                protocol: next,
                at,
                named,
            };
        }
        let Some(head) = b.get(at..at + 8) else {
            return Walk::Cut;
        };
        let len = match next {
            44 => 8,
            _ => (usize::from(head[1]) + 1) * 8,
        };
        let Some(header) = b.get(at..at + len) else {
            return Walk::Cut;
        };
        match next {
            // Only the first one (RFC 8200 4.1).
            0 if at != 40 => return Walk::Refuse(Problem::new(NEXT_HEADER, named)),
            0 | 60 => {
                if let Err(walk) = options(header, at) {
                    return walk;
                }
            }
            // No route is followed (RFC 5095); one that is at its end is none.
            43 if head[3] != 0 => return Walk::Refuse(Problem::new(FIELD, at + 2)),
            44 => {
                let f = Fragment {
                    at,
                    named,
                    next: head[0],
                    offset: usize::from(be16(head, 2) & 0xfff8),
                    more: head[3] & 1 != 0,
                    id: be32(head, 4),
                };
                // One that is alone is the whole (RFC 6946).
                if f.offset != 0 || f.more {
                    return match fragments {
                        Fragments::Possible => check(b, f),
                        Fragments::Done => Walk::Drop,
                    };
                }
            }
            _ => {}
        }
        (next, named, at) = (head[0], at, at + len);
    }
    Walk::Drop
}

fn check(b: &[u8], f: Fragment) -> Walk {
    let len = b.len() - f.at - 8;
    if f.more && !len.is_multiple_of(8) {
        Walk::Refuse(Problem::new(FIELD, 4))
    } else if f.offset + len > 65_535 {
        Walk::Refuse(Problem::new(FIELD, f.at + 2))
    } else {
        Walk::Fragment(f)
    }
}

/// Looks at the options of a header (RFC 8200 4.2): the error ends the walk.
fn options(header: &[u8], at: usize) -> Result<(), Walk> {
    let (mut o, mut known) = (2, 0);
    while o < header.len() {
        let kind = header[o];
        if kind == 0 {
            o += 1;
            continue;
        }
        let len = match header.get(o + 1) {
            Some(n) => usize::from(*n) + 2,
            None => return Err(Walk::Drop),
        };
        if o + len > header.len() {
            return Err(Walk::Drop);
        }
        known += usize::from(kind != 1);
        if known > MOST || kind == 1 && len > 7 {
            return Err(Walk::Drop);
        }
        let problem = |code| Problem::new(code, at + o);
        match kind {
            // Padding; a router's alert (RFC 2711).
            1 => {}
            5 if len == 4 => {}
            5 => return Err(Walk::Drop),
            // No packet is as long as a jumbogram (RFC 2675).
            0xc2 => return Err(Walk::Refuse(problem(FIELD))),
            _ => match kind >> 6 {
                0 => {}
                1 => return Err(Walk::Drop),
                rule => {
                    let mut p = problem(OPTION);
                    p.even_to_all = rule == 2;
                    return Err(Walk::Refuse(p));
                }
            },
        }
        o += len;
    }
    Ok(())
}

/// What the options of an IPv4 header say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum V4Options {
    Fine,
    /// A route that the sender wishes for.
    SourceRoute,
    Wrong(Problem),
}

/// Looks at the options of an IPv4 header of which this is all (RFC 791 3.1).
pub(super) fn v4_options(header: &[u8]) -> V4Options {
    let mut at = 20;
    while at < header.len() {
        match header[at] {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let len = header.get(at + 1).map_or(0, |n| usize::from(*n));
        if len < 2 || at + len > header.len() {
            return V4Options::Wrong(Problem::new(FIELD, at));
        }
        if matches!(header[at], 131 | 137) {
            return V4Options::SourceRoute;
        }
        at += len;
    }
    V4Options::Fine
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next: u8, rest: &[u8]) -> Vec<u8> {
        let mut b = vec![0; 40];
        b[6] = next;
        b.extend_from_slice(rest);
        b
    }

    #[test]
    fn headers_are_walked_to_the_transport() {
        // Hop by hop with a router's alert, a destination's, an atomic fragment.
        let b = packet(
            0,
            &[
                60, 0, 5, 2, 0, 0, 1, 0, 44, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0, 0, 1, 2, 3, 4, 9,
            ],
        );
        let end = Walk::Transport {
            protocol: 17,
            at: 64,
            named: 56,
        };
        assert_eq!(walk(&b, Fragments::Possible), end);
        assert_eq!(walk(&b[..60], Fragments::Possible), Walk::Cut);
    }

    #[test]
    fn what_is_refused_points_at_its_place() {
        let refuse = |next, rest: &[u8]| match walk(&packet(next, rest), Fragments::Possible) {
            Walk::Refuse(p) => (p.code, p.pointer, p.even_to_all),
            w => panic!("{w:?}"),
        };
        // A route of type 0 with an address left.
        assert_eq!(refuse(43, &[6, 0, 0, 1, 0, 0, 0, 0]), (FIELD, 42, false));
        // Hop by hop behind another one.
        let behind = [0, 0, 1, 4, 0, 0, 0, 0, 6, 0, 1, 4, 0, 0, 0, 0];
        assert_eq!(refuse(60, &behind), (NEXT_HEADER, 40, false));
        // A jumbogram.
        let jumbo = [6, 0, 0xc2, 4, 0, 1, 0, 0];
        assert_eq!(refuse(0, &jumbo), (FIELD, 42, false));
        // Options that nobody knows, by what their first bits ask for.
        assert_eq!(refuse(60, &[6, 0, 0x80, 4, 0, 0, 0, 0]), (OPTION, 42, true));
        assert_eq!(
            refuse(60, &[6, 0, 0xc0, 4, 0, 0, 0, 0]),
            (OPTION, 42, false)
        );
        let dropped = packet(60, &[6, 0, 0x40, 4, 0, 0, 0, 0]);
        assert_eq!(walk(&dropped, Fragments::Possible), Walk::Drop);
        let passed = packet(60, &[6, 0, 0x3e, 4, 0, 0, 0, 0]);
        assert!(matches!(
            walk(&passed, Fragments::Possible),
            Walk::Transport { .. }
        ));
        // A fragment before the last of an odd length.
        assert_eq!(refuse(44, &[6, 0, 0, 1, 0, 0, 0, 1, 5]), (FIELD, 4, false));
        // One that ends behind the longest packet.
        let far = [6, 0, 0xff, 0xf8, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(refuse(44, &far), (FIELD, 42, false));
    }

    #[test]
    fn v4_options_are_looked_at() {
        let mut h = [0; 28];
        h[20..].copy_from_slice(&[1, 1, 7, 3, 4, 0, 0, 0]);
        assert_eq!(v4_options(&h), V4Options::Fine);
        h[22] = 131;
        assert_eq!(v4_options(&h), V4Options::SourceRoute);
        h[23] = 9;
        assert_eq!(v4_options(&h), V4Options::Wrong(Problem::new(FIELD, 22)));
    }

    proptest! {
        #[test]
        fn any_packet_is_walked(
            next in prop::sample::select(vec![0u8, 43, 44, 60, 6]),
            rest in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let b = packet(next, &rest);
            if let Walk::Transport { at, named, .. } = walk(&b, Fragments::Possible) {
                prop_assert!(at <= b.len() && named < at);
            }
        }

        #[test]
        fn any_options_are_looked_at(b in proptest::collection::vec(any::<u8>(), 20..60)) {
            v4_options(&b);
        }
    }
}
