"""Processes of a sandbox, as the host sees them."""

import contextlib
import os
from pathlib import Path


def descendants(pid):
    """A process, its children, and theirs, as far as they are still there."""
    found = [pid]
    for p in found:
        with contextlib.suppress(OSError):
            for c in Path(f"/proc/{p}/task").glob("*/children"):
                found += map(int, c.read_text().split())
    return found


def pss(pids):
    """Their memory, where what is shared is divided among those who share it, in KiB."""
    total = 0
    for p in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{p}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total


def open_files(pid):
    """What its processes have open: who, where in /proc, and what it is."""
    for p in descendants(pid):
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{p}/fd"):
                path = f"/proc/{p}/fd/{fd}"
                yield p, path, os.readlink(path)


def memory_files(pid):
    """Of those that hold a container's memory file: who, and where in /proc."""
    return ((p, path) for p, path, name in open_files(pid) if "memfd:cloister-memory" in name)
