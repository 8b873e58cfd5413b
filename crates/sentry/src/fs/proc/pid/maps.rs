//! `/proc/PID/maps`, `smaps` and `smaps_rollup`: what is mapped, and how much of it is there.

use super::Subject;
use abi::Result;

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

pub(super) fn maps(me: &Subject) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    me.task()?.mm().for_each_vma(|v| out.extend(map_line(v)));
    Ok(out)
}

fn usage_lines(rss: u64, anonymous: u64, shared: u64) -> String {
    let (r, a, s) = (rss / 1024, anonymous / 1024, shared / 1024);
    let clean = r.saturating_sub(a);
    format!(
        "Rss:            {r:8} kB\nPss:            {r:8} kB\nShared_Clean:   {clean:8} kB\nShared_Dirty:   {s:8} kB\nPrivate_Clean:  {:8} kB\nPrivate_Dirty:  {:8} kB\nReferenced:     {r:8} kB\nAnonymous:      {a:8} kB\nLazyFree:       {:8} kB\nAnonHugePages:  {:8} kB\nSwap:           {:8} kB\nSwapPss:        {:8} kB\nLocked:         {:8} kB\n",
        0,
        a.saturating_sub(s),
        0,
        0,
        0,
        0,
        0
    )
}

pub(super) fn smaps(me: &Subject) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let mut out = Vec::new();
    for v in mm.vmas() {
        out.extend(map_line(&v));
        let u = mm.vma_usage(v.start, v.end);
        let size = (v.end - v.start) / 1024;
        out.extend_from_slice(
            format!("Size:           {size:8} kB\nKernelPageSize:        4 kB\nMMUPageSize:           4 kB\n").as_bytes(),
        );
        out.extend_from_slice(usage_lines(u.rss, u.anonymous, u.shared).as_bytes());
        out.extend_from_slice(b"THPeligible:           0\nVmFlags: \n");
    }
    Ok(out)
}
pub(super) fn smaps_rollup(me: &Subject) -> Result<Vec<u8>> {
    let mm = me.task()?.mm();
    let (mut r, mut a, mut s) = (0, 0, 0);
    let vmas = mm.vmas();
    for v in &vmas {
        let u = mm.vma_usage(v.start, v.end);
        r += u.rss;
        a += u.anonymous;
        s += u.shared;
    }
    let (start, end) = (
        vmas.first().map_or(0, |v| v.start),
        vmas.last().map_or(0, |v| v.end),
    );
    let mut out = format!("{start:08x}-{end:08x} ---p 00000000 00:00 0 [rollup]\n");
    out.push_str(&usage_lines(r, a, s));
    Ok(out.into_bytes())
}
