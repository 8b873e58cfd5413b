//! An application's filter: what is accepted ends, and says the same of a call as its short form
//! does.
#![no_main]

use seccomp::bpf::{ARCH, Insn, Program};
use zerocopy::FromBytes;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((call, code)) = bytes.split_first_chunk::<64>() else {
        return;
    };
    let code: Vec<Insn> = code
        .chunks_exact(8)
        .map(|c| Insn::read_from_bytes(c).expect("8 bytes"))
        .collect();
    let Ok(p) = Program::new(&code) else { return };
    let mut data = [0; 16];
    for (word, b) in data.iter_mut().zip(call.chunks_exact(4)) {
        *word = u32::from_le_bytes(b.try_into().expect("4 bytes"));
    }
    data[1] = ARCH;
    let said = p.run(&data);
    if let Some(always) = p.constant(data[0]) {
        assert_eq!(always, said);
    }
    assert!(p.weight() >= code.len());
});
