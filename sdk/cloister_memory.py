"""Confidential memory, for programs in Cloister: `sdk/cloister.h` says what that is.

    with Palloc(4096) as key:
        key[:5] = b"hello"

Elsewhere it is overwritten when it is given up, and kept out of core files.
"""

import ctypes
import errno
import mmap

MADV_CONFIDENTIAL = 0x436C6F01
PR_SET_CONFIDENTIAL = 0x436C6F01
PR_GET_CONFIDENTIAL = 0x436C6F02
_MADV_DONTDUMP = 16
_libc = ctypes.CDLL(None, use_errno=True)


def is_kept():
    """Whether the kernel keeps confidential memory as Cloister does."""
    return _libc.prctl(PR_GET_CONFIDENTIAL, 0, 0, 0, 0) >= 0


def whole_process():
    """Makes all memory of this process confidential, of its children and of the programs that it becomes. OSError elsewhere."""
    if _libc.prctl(PR_SET_CONFIDENTIAL, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel has no confidential memory")


class Palloc:
    """So many bytes of confidential memory, zeros: a buffer, to be read and written by slices.

    What is taken out of it (`bytes(p[0:5])`) is a copy in ordinary memory, unless the whole process is confidential.
    """

    def __init__(self, size):
        if size <= 0:
            raise ValueError("confidential memory of no size")
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        first = ctypes.c_char.from_buffer(self._map)
        at, length = ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size)
        failed = ctypes.get_errno() if _libc.madvise(at, length, MADV_CONFIDENTIAL) != 0 else 0
        if failed == errno.EINVAL:
            # Another kernel.
            _libc.madvise(at, length, _MADV_DONTDUMP)
        del first
        if failed not in (0, errno.EINVAL):
            raise OSError(failed, "no room for confidential memory")

    def __len__(self):
        return len(self._map)

    def __getitem__(self, at):
        return memoryview(self._map)[at]

    def __setitem__(self, at, value):
        self._map[at] = value

    def free(self):
        """Overwrites it, and gives it up. BufferError while parts of it are in use."""
        if not self._map.closed:
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(self._map)), 0, len(self._map))
            self._map.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.free()

    def __del__(self):
        try:
            self.free()
        except (AttributeError, BufferError):
            pass
