//! A batch of nf_tables' messages, and a packet by the rules that come of it.
#![no_main]

use cloister_fuzz::Here;
use libfuzzer_sys::{arbitrary, fuzz_target};
use netfilter::attr::Selection;
use netfilter::nft::{self, Message, Transaction};
use netfilter::packet::{Hook, Meta, Packet};
use netfilter::rewrite::{Checksum, apply};
use netfilter::{Engine, Outcome};

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    batch: Vec<(u8, u16, u8, Vec<u8>)>,
    packets: Vec<Vec<u8>>,
}

fuzz_target!(|input: Input| {
    let e = Engine::default();
    let c = e.change();
    let mut t = Transaction::new(&c.rules(), 0);
    for (kind, flags, family, attrs) in &input.batch {
        let m = Message {
            kind: kind % 34,
            flags: *flags,
            family: *family,
            attrs,
        };
        let _ = t.apply(&m);
        let _ = nft::ask(&e.rules(), &m, Selection::All, 0, (1, "fuzz"));
    }
    let _ = c.commit(t.finish());
    for b in &input.packets {
        let Some(p) = Packet::new(b, b.len(), 1, &Here) else {
            continue;
        };
        let mut meta = Meta::default();
        for hook in Hook::ALL {
            if let Outcome::Accept(Some(r)) = e.run(hook, &p, &mut meta) {
                let _ = apply(&mut b.clone(), &r, Checksum::Whole);
            }
        }
    }
});
