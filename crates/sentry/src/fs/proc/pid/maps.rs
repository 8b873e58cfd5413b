//! `/proc/PID/maps`, `smaps` and `smaps_rollup`: what is mapped, and how much of it is there.

use super::Subject;
use abi::Result;
use abi::errno::ESRCH;
use mm::policy::Policy;
use std::sync::Arc;

fn map_line(v: &mm::VmaInfo) -> Vec<u8> {
    let (dev, ino) = v.dev_ino();
    let perms = v.perms();
    let head = format!(
        "{:08x}-{:08x} {} {:08x} {:02x}:{:02x} {} ",
        v.start,
        v.end,
        String::from_utf8_lossy(&perms),
        v.offset,
        vfs::major(dev),
        vfs::minor(dev),
        ino
    );
    let name = v.name();
    let mut line = head.into_bytes();
    if name.is_empty() {
        line.pop();
        line.push(b' ');
    } else {
        while line.len() < 73 {
            line.push(b' ');
        }
        for b in name {
            if b == b'\n' {
                line.extend_from_slice(b"\\012")
            } else {
                line.push(b)
            }
        }
    }
    line.push(b'\n');
    line
}

/// The memory of a process that there still is; none where it runs another program now.
pub(super) fn of(me: &Subject) -> Result<Option<Arc<mm::Mm>>> {
    me.task()?;
    Ok(me.pinned())
}

pub(super) fn maps(me: &Subject) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if let Some(mm) = of(me)? {
        mm.for_each_vma(|v| out.extend(map_line(v)));
    }
    Ok(out)
}

/// `locked`: how much of it is in locked areas.
fn usage_lines(u: &mm::VmaUsage, locked: u64) -> String {
    let [r, a, s, w] = [u.rss, u.anonymous, u.shared, u.swapped].map(|n| n / 1024);
    let clean = r.saturating_sub(a);
    format!(
        "Rss:            {r:8} kB\nPss:            {r:8} kB\nPss_Dirty:      {a:8} kB\nShared_Clean:   {clean:8} kB\nShared_Dirty:   {s:8} kB\nPrivate_Clean:  {:8} kB\nPrivate_Dirty:  {:8} kB\nReferenced:     {r:8} kB\nAnonymous:      {a:8} kB\nKSM:            {:8} kB\nLazyFree:       {:8} kB\nAnonHugePages:  {:8} kB\nShmemPmdMapped: {:8} kB\nFilePmdMapped:  {:8} kB\nShared_Hugetlb: {:8} kB\nPrivate_Hugetlb: {:7} kB\nSwap:           {w:8} kB\nSwapPss:        {w:8} kB\nLocked:         {:8} kB\n",
        0,
        a.saturating_sub(s),
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        locked / 1024
    )
}

fn is_locked(v: &mm::VmaInfo) -> bool {
    v.flags.contains(mm::VmaFlags::LOCKED)
}

/// The two-letter names, in Linux's order (`show_smap_vma_flags`).
fn vm_flags(v: &mm::VmaInfo) -> Vec<&'static str> {
    use mm::{Prot, VmaFlags as F};
    let accounted = v.prot.contains(Prot::WRITE) && !v.flags.intersects(F::SHARED | F::NORESERVE);
    let all = [
        (v.prot.contains(Prot::READ), "rd"),
        (v.prot.contains(Prot::WRITE), "wr"),
        (v.prot.contains(Prot::EXEC), "ex"),
        (
            v.flags.contains(F::SHARED) && v.max_prot.contains(Prot::WRITE),
            "sh",
        ),
        (v.max_prot.contains(Prot::READ), "mr"),
        (v.max_prot.contains(Prot::WRITE), "mw"),
        (v.max_prot.contains(Prot::EXEC), "me"),
        (v.flags.contains(F::SHARED), "ms"),
        (v.flags.contains(F::GROWSDOWN), "gd"),
        (v.flags.contains(F::LOCKED), "lo"),
        (v.flags.contains(F::DONTFORK), "dc"),
        (accounted, "ac"),
        (v.flags.contains(F::NORESERVE), "nr"),
        (v.flags.contains(F::WIPEONFORK), "wf"),
        (v.flags.contains(F::DONTDUMP), "dd"),
        (v.flags.contains(F::SEALED), "sl"),
    ];
    all.iter().filter(|f| f.0).map(|f| f.1).collect()
}

pub(super) fn smaps(me: &Subject) -> Result<Vec<u8>> {
    let Some(mm) = of(me)? else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    for v in mm.vmas() {
        out.extend(map_line(&v));
        let u = mm.vma_usage(v.start, v.end);
        let size = (v.end - v.start) / 1024;
        out.extend_from_slice(
            format!("Size:           {size:8} kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n").as_bytes(),
        );
        let locked = if is_locked(&v) { u.rss } else { 0 };
        out.extend_from_slice(usage_lines(&u, locked).as_bytes());
        out.extend_from_slice(b"THPeligible:           0\nVmFlags:");
        for flag in vm_flags(&v) {
            out.extend_from_slice(b" ");
            out.extend_from_slice(flag.as_bytes());
        }
        out.extend_from_slice(b" \n");
    }
    Ok(out)
}
pub(super) fn smaps_rollup(me: &Subject) -> Result<Vec<u8>> {
    let mm = of(me)?.ok_or(ESRCH)?;
    let vmas = mm.vmas();
    let all = mm.vma_usage(0, mm::USER_MAX);
    let (start, end) = (
        vmas.first().map_or(0, |v| v.start),
        vmas.last().map_or(0, |v| v.end),
    );
    let mut out = format!("{start:08x}-{end:08x} ---p 00000000 00:00 0 [rollup]\n");
    let locked = vmas.iter().filter(|v| is_locked(v));
    let locked = locked.map(|v| mm.vma_usage(v.start, v.end).rss).sum();
    out.push_str(&usage_lines(&all, locked));
    Ok(out.into_bytes())
}

/// All memory is on the one node (`show_numa_map`).
pub(super) fn numa_maps(me: &Subject) -> Result<Vec<u8>> {
    let Some(mm) = of(me)? else {
        return Ok(Vec::new());
    };
    let mut out = Vec::new();
    let bits = me
        .task()?
        .numa_policy
        .load(std::sync::atomic::Ordering::Relaxed);
    let of_task = Policy::from_bits(bits);
    for v in mm.vmas() {
        let own = v.flags.policy();
        let shown = if own == Policy::default() {
            of_task
        } else {
            own
        };
        out.extend(format!("{:08x} {}", v.start, shown.describe()).into_bytes());
        let name = v.name();
        match name.as_slice() {
            b"[heap]" => out.extend(b" heap"),
            b"[stack]" => out.extend(b" stack"),
            _ if v.is_file() => {
                out.extend(b" file=");
                for b in name {
                    match b {
                        b'\n' | b'\t' | b' ' | b'=' | b'\\' => {
                            out.extend(format!("\\{b:03o}").into_bytes());
                        }
                        b => out.push(b),
                    }
                }
            }
            _ => {}
        }
        let u = mm.vma_usage(v.start, v.end);
        let (all, anon) = (u.rss / abi::PAGE_SIZE, u.anonymous / abi::PAGE_SIZE);
        if anon > 0 {
            out.extend(format!(" anon={anon} dirty={anon}").into_bytes());
        }
        if all > anon {
            out.extend(format!(" mapped={all}").into_bytes());
        }
        if all > 0 {
            out.extend(format!(" N0={all} kernelpagesize_kB=4").into_bytes());
        }
        out.push(b'\n');
    }
    Ok(out)
}
