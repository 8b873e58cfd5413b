//! A table of iptables' socket options, what is told of it, and a packet by the rules that come of
//! it.
#![no_main]

use cloister_fuzz::Here;
use libfuzzer_sys::{arbitrary, fuzz_target};
use netfilter::Engine;
use netfilter::legacy::{self, Get, Legacy, Replacement};
use netfilter::packet::{Hook, Meta, Packet};
use netfilter::table::Family;
use std::sync::Arc;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    is_v4: bool,
    replacement: Vec<u8>,
    counters: Vec<u8>,
    asked: Vec<u8>,
    packets: Vec<Vec<u8>>,
}

fn put(e: &Engine, family: Family, b: &[u8]) -> abi::Result<Arc<Legacy>> {
    let new = Replacement::read(family, b)?;
    let c = e.change();
    let mut rules = (*c.rules()).clone();
    let old = Legacy::empty(new.kind()?, family)?;
    let table = Arc::new(new.instead_of(&old)?);
    rules.legacy = vec![table.clone()];
    c.commit_legacy(rules)?;
    Ok(table)
}

fuzz_target!(|input: Input| {
    let e = Engine::default();
    let family = if input.is_v4 { Family::V4 } else { Family::V6 };
    for get in [Get::Match, Get::Target] {
        let _ = legacy::revision(&input.asked, family, get);
    }
    let _ = legacy::check_counters(&input.counters);
    let _ = legacy::entries_asked(&input.asked, input.counters.len());
    let Ok(t) = put(&e, family, &input.replacement) else {
        return;
    };
    let told = legacy::info(&input.asked, &t);
    let size = u32::from_ne_bytes(told[80..84].try_into().unwrap());
    legacy::entries(&[0; 40], size as usize, &t).unwrap();
    let _ = legacy::add_counters(&input.counters, &t);
    for b in &input.packets {
        let Some(p) = Packet::new(b, b.len(), 1, &Here) else {
            continue;
        };
        let mut meta = Meta::default();
        for hook in Hook::ALL {
            let _ = e.run(hook, &p, &mut meta);
        }
    }
});
