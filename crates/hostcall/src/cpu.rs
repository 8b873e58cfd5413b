//! What `cpuid` says of the CPU, for /proc/cpuinfo. Each question leaves a virtual machine (some
//! microseconds): asked when somebody reads, never at start.

use core::arch::x86_64::__cpuid_count;

fn leaf(l: u32, sub: u32) -> [u32; 4] {
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has the instruction.
    let r = unsafe { __cpuid_count(l, sub) };
    [r.eax, r.ebx, r.ecx, r.edx]
}

fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    String::from_utf8_lossy(&bytes)
        .trim_end_matches('\0')
        .trim()
        .to_string()
}

/// `GenuineIntel`, `AuthenticAMD`.
#[must_use]
pub fn vendor() -> String {
    let [_, b, c, d] = leaf(0, 0);
    text(&[b, d, c])
}

/// The model's name.
#[must_use]
pub fn brand() -> String {
    let words: Vec<u32> = (0x8000_0002..=0x8000_0004u32)
        .flat_map(|l| leaf(l, 0))
        .collect();
    text(&words)
}

/// Family, model and stepping, with the extended parts.
#[must_use]
pub fn family_model_stepping() -> (u32, u32, u32) {
    let a = leaf(1, 0)[0];
    let (base, model, stepping) = ((a >> 8) & 15, (a >> 4) & 15, a & 15);
    let family = if base == 15 {
        base + ((a >> 20) & 255)
    } else {
        base
    };
    let model = if base >= 6 {
        model | ((a >> 12) & 0xf0)
    } else {
        model
    };
    (family, model, stepping)
}

/// A cache of the processor's.
pub struct Cache {
    pub level: u32,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: &'static str,
    /// Bytes of a line.
    pub line: u32,
    pub partitions: u32,
    pub ways: u32,
    pub sets: u32,
}

impl Cache {
    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        [self.line, self.partitions, self.ways, self.sets]
            .iter()
            .fold(1, |n, f| n * u64::from(*f))
    }
}

/// The caches, from the first level on: leaf 4, or AMD's of the same form.
#[must_use]
pub fn caches() -> Vec<Cache> {
    const AMD: u32 = 0x8000_001d;
    let l = if vendor() != "AuthenticAMD" {
        4
    } else if leaf(0x8000_0000, 0)[0] >= AMD {
        AMD
    } else {
        return Vec::new();
    };
    if l == 4 && leaf(0, 0)[0] < 4 {
        return Vec::new();
    }
    let all = (0..8).map(|i| leaf(l, i)).map_while(|[a, b, c, _]| {
        let kind = match a & 31 {
            1 => "Data",
            2 => "Instruction",
            3 => "Unified",
            _ => return None,
        };
        Some(Cache {
            level: a >> 5 & 7,
            kind,
            line: (b & 0xfff) + 1,
            partitions: (b >> 12 & 0x3ff) + 1,
            ways: (b >> 22) + 1,
            sets: c.saturating_add(1),
        })
    });
    all.collect()
}

/// Names of bits: leaf, sub-leaf, register, bit, name (`arch/x86/include/asm/cpufeatures.h`).
const FLAGS: &[(u32, u32, usize, u32, &str)] = &[
    (1, 0, 3, 0, "fpu"),
    (1, 0, 3, 4, "tsc"),
    (1, 0, 3, 8, "cx8"),
    (1, 0, 3, 15, "cmov"),
    (1, 0, 3, 19, "clflush"),
    (1, 0, 3, 23, "mmx"),
    (1, 0, 3, 24, "fxsr"),
    (1, 0, 3, 25, "sse"),
    (1, 0, 3, 26, "sse2"),
    (1, 0, 3, 28, "ht"),
    (0x8000_0001, 0, 3, 11, "syscall"),
    (0x8000_0001, 0, 3, 20, "nx"),
    (0x8000_0001, 0, 3, 27, "rdtscp"),
    (0x8000_0001, 0, 3, 29, "lm"),
    (1, 0, 2, 0, "pni"),
    (1, 0, 2, 1, "pclmulqdq"),
    (1, 0, 2, 9, "ssse3"),
    (1, 0, 2, 12, "fma"),
    (1, 0, 2, 13, "cx16"),
    (1, 0, 2, 19, "sse4_1"),
    (1, 0, 2, 20, "sse4_2"),
    (1, 0, 2, 22, "movbe"),
    (1, 0, 2, 23, "popcnt"),
    (1, 0, 2, 25, "aes"),
    (1, 0, 2, 26, "xsave"),
    (1, 0, 2, 28, "avx"),
    (1, 0, 2, 29, "f16c"),
    (1, 0, 2, 30, "rdrand"),
    (1, 0, 2, 31, "hypervisor"),
    (0x8000_0001, 0, 2, 0, "lahf_lm"),
    (0x8000_0001, 0, 2, 5, "abm"),
    (0x8000_0001, 0, 2, 6, "sse4a"),
    (7, 0, 1, 0, "fsgsbase"),
    (7, 0, 1, 3, "bmi1"),
    (7, 0, 1, 5, "avx2"),
    (7, 0, 1, 8, "bmi2"),
    (7, 0, 1, 9, "erms"),
    (7, 0, 1, 16, "avx512f"),
    (7, 0, 1, 17, "avx512dq"),
    (7, 0, 1, 18, "rdseed"),
    (7, 0, 1, 19, "adx"),
    (7, 0, 1, 21, "avx512ifma"),
    (7, 0, 1, 23, "clflushopt"),
    (7, 0, 1, 24, "clwb"),
    (7, 0, 1, 28, "avx512cd"),
    (7, 0, 1, 29, "sha_ni"),
    (7, 0, 1, 30, "avx512bw"),
    (7, 0, 1, 31, "avx512vl"),
    (7, 0, 2, 9, "vaes"),
    (7, 0, 2, 10, "vpclmulqdq"),
    (7, 0, 2, 11, "avx512_vnni"),
    (7, 0, 3, 4, "fsrm"),
];

/// The flags that applications look for.
#[must_use]
pub fn flags() -> String {
    let mut seen = Vec::<((u32, u32), [u32; 4])>::new();
    let mut out = Vec::new();
    for (l, sub, reg, bit, name) in FLAGS {
        let r = match seen.iter().find(|(k, _)| *k == (*l, *sub)) {
            Some((_, r)) => *r,
            None => {
                let r = leaf(*l, *sub);
                seen.push(((*l, *sub), r));
                r
            }
        };
        if r[*reg] >> bit & 1 != 0 {
            out.push(*name);
        }
    }
    out.join(" ")
}
