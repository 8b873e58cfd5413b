//! One end, and a peer that a test writes by hand.

use crate::tcp::{
    Changes, Config, Connection, Emitted, Flags, Header, Options, Output, Segment, Seq, State,
    Take, Timestamps,
};
use crate::time::Instant;
use bytes::Bytes;
use std::time::Duration;

/// What was emitted.
#[derive(Clone, Debug)]
pub struct Out {
    pub header: Header,
    pub payload: Vec<u8>,
    pub mss: u16,
}

#[derive(Default)]
struct Wire {
    out: Vec<Out>,
}

impl Output for Wire {
    fn emit(&mut self, header: &Header, payload: &[&[u8]], mss: u16) -> Emitted {
        self.out.push(Out {
            header: *header,
            payload: payload.concat(),
            mss,
        });
        Emitted::Sent
    }
}

/// Our first sequence number and the peer's: both wrap soon.
pub const OURS: Seq = Seq(u32::MAX - 1000);
pub const THEIRS: Seq = Seq(u32::MAX - 2000);

pub struct Script {
    pub c: Connection,
    pub now: Instant,
    pub window: u16,
    /// Whether segments of the peer carry timestamps: its value is the time in milliseconds.
    pub timestamps: bool,
    /// The last timestamp that we sent.
    pub echo: u32,
    /// What we wait for to be acknowledged, and what we expect.
    pub places: (Seq, Seq),
}

pub fn options() -> Options {
    Options {
        mss: Some(1460),
        window_scale: Some(0),
        sack_permitted: true,
        ..Options::default()
    }
}

impl Script {
    pub fn connect(config: Config) -> Script {
        let now = Instant(100_000_000_000);
        let c = Connection::connect(config, OURS, now);
        Script {
            c,
            now,
            window: u16::MAX,
            timestamps: false,
            echo: 0,
            places: (OURS, THEIRS),
        }
    }

    /// A connection without timestamps to a peer with a window of 65,535.
    pub fn established(config: Config) -> Script {
        Script::with(config, options())
    }

    pub fn with(config: Config, options: Options) -> Script {
        let mut s = Script::connect(config);
        s.timestamps = options.timestamps.is_some();
        assert_eq!(s.sent().len(), 1);
        s.pass(10);
        let mut h = s.header(0, 0, Flags::SYN | Flags::ACK);
        h.seq = THEIRS;
        h.options = Options {
            timestamps: h.options.timestamps,
            ..options
        };
        assert!(s.segment(h, b"").contains(Changes::ESTABLISHED));
        let out = s.sent();
        assert_eq!(out.len(), 1, "{out:?}");
        s
    }

    pub fn with_timestamps(config: Config) -> Script {
        let t = Timestamps { value: 0, echo: 0 };
        Script::with(
            config,
            Options {
                timestamps: Some(t),
                ..options()
            },
        )
    }

    /// What goes now.
    pub fn sent(&mut self) -> Vec<Out> {
        self.told_and_sent().1
    }

    /// The same, and what that changes.
    pub fn told_and_sent(&mut self) -> (Changes, Vec<Out>) {
        let mut wire = Wire::default();
        let told = self.c.transmit(self.now, &mut wire);
        let mut stamps = wire.out.iter().filter_map(|o| o.header.options.timestamps);
        if let Some(t) = stamps.next_back() {
            self.echo = t.value;
        }
        (told, wire.out)
    }

    /// Lets milliseconds pass without looking at timers.
    pub fn pass(&mut self, millis: u64) {
        self.now = self.now + Duration::from_millis(millis);
    }

    /// Goes to the next deadline, and tells what goes then.
    pub fn wait(&mut self) -> (Changes, Vec<Out>) {
        self.now = self.now.max(self.c.deadline().expect("a deadline"));
        let changes = self.c.timer(self.now);
        (changes, self.sent())
    }

    /// How long it is until the next deadline.
    pub fn left(&self) -> Duration {
        self.c.deadline().expect("a deadline").since(self.now)
    }

    /// A header of the peer: after `from` bytes of its stream, acknowledging `ack` of ours.
    pub fn header(&self, from: u32, ack: u32, flags: Flags) -> Header {
        let mut h = Header {
            seq: THEIRS.plus(1).plus(from),
            ack: OURS.plus(1).plus(ack),
            flags,
            window: self.window,
            ..Header::default()
        };
        if self.timestamps {
            let value = self.now.millis() as u32;
            h.options.timestamps = Some(Timestamps {
                value,
                echo: self.echo,
            });
        }
        h
    }

    pub fn segment(&mut self, header: Header, payload: &[u8]) -> Changes {
        self.joined(header, payload, 1)
    }

    /// One that was joined from several.
    pub fn joined(&mut self, header: Header, payload: &[u8], joined: u16) -> Changes {
        let payload = Bytes::copy_from_slice(payload);
        self.c.segment(
            self.now,
            Segment {
                header,
                payload,
                congestion: false,
                joined,
                ..Segment::default()
            },
        )
    }

    pub fn ack(&mut self, n: u32) -> Changes {
        self.segment(self.header(0, n, Flags::ACK), b"")
    }

    /// With selective blocks of our stream.
    pub fn sack(&mut self, n: u32, blocks: &[(u32, u32)]) -> Changes {
        let mut h = self.header(0, n, Flags::ACK);
        for (to, &(l, r)) in h.options.sack.iter_mut().zip(blocks) {
            *to = Some((OURS.plus(1).plus(l), OURS.plus(1).plus(r)));
        }
        self.segment(h, b"")
    }

    pub fn data(&mut self, from: u32, payload: &[u8]) -> Changes {
        self.segment(self.header(from, 0, Flags::ACK), payload)
    }

    /// With MSG_MORE.
    pub fn write_more(&mut self, n: usize) {
        let mut left = n;
        let fill = |to: &mut [u8]| {
            let n = to.len().min(left);
            left -= n;
            Ok::<_, ()>(n)
        };
        assert_eq!(self.c.write_more(fill), Ok(n));
    }

    pub fn write(&mut self, n: usize) -> usize {
        let mut left = n;
        self.c
            .write::<()>(|to| {
                let n = to.len().min(left);
                left -= n;
                Ok(n)
            })
            .unwrap()
    }

    pub fn read(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.c
            .read::<()>(Take::Out, |b| {
                all.extend_from_slice(b);
                Ok(b.len())
            })
            .unwrap();
        all
    }

    /// Where a segment of ours lies in our stream.
    pub fn at(o: &Out) -> i32 {
        o.header.seq.distance(OURS.plus(1))
    }

    /// What of the peer's stream we have.
    pub fn acked(o: &Out) -> i32 {
        o.header.ack.distance(THEIRS.plus(1))
    }

    pub fn state(&self) -> State {
        self.c.state()
    }
}
