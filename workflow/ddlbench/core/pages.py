"""Which pages of a file lie in this node's memory: asked of the kernel, without reading them.

Sources: Linux, mincore(2), which answers only those who may write to the file, or own it; mmap(2).
"""

import ctypes
import mmap


def in_memory(file: int, length: int) -> tuple[int, int]:
    """Count (pages in memory, all pages) of the first `length` bytes of an open file.

    Raises OSError; ValueError if the file is shorter; AttributeError where there is no mincore.
    """
    if not length:
        return 0, 0
    # Private and writable: ctypes wants the address of a buffer that may be written to. Nothing is written.
    with mmap.mmap(file, length, access=mmap.ACCESS_COPY) as mapped:
        pages = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        start = ctypes.c_char.from_buffer(mapped)
        address = ctypes.c_void_p(ctypes.addressof(start))
        failed = ctypes.CDLL(None, use_errno=True).mincore(address, ctypes.c_size_t(length), pages)
        del start  # or the mapping cannot be closed
        if failed:
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(page & 1 for page in pages), len(pages)
