//! A file to execute: ELF headers, program headers, the interpreter's name, a script's first line.
#![no_main]

use std::sync::Arc;

struct Bytes(Vec<u8>);

impl loader::Image for Bytes {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> abi::Result<usize> {
        let rest = usize::try_from(offset)
            .ok()
            .and_then(|o| self.0.get(o..))
            .unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
    fn map_file(&self) -> abi::Result<mm::MapFile> {
        Err(abi::errno::ENODEV)
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let image = Arc::new(Bytes(bytes.to_vec()));
    if let Ok(loader::Program::Elf(elf)) = loader::identify(image.clone()) {
        let _ = elf.interpreter();
    }
    let _ = loader::Elf::parse_interpreter(image);
});
