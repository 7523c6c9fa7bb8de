"""Read-only folders are read-only for root, too."""

import contextlib
import ctypes
import os
import sys


@contextlib.contextmanager
def bound_by_permissions():
    """On Linux, root may not write or read in this thread what permissions forbid."""
    if sys.platform != "linux" or os.geteuid() != 0:
        yield
        return
    libc, header, sets = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(0x20080522), (ctypes.c_uint32 * 6)()
    assert libc.capget(header, sets) == 0
    effective = sets[0]
    sets[0] &= ~0b110  # CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH
    assert libc.capset(header, sets) == 0
    try:
        yield
    finally:
        sets[0] = effective
        assert libc.capset(header, sets) == 0
