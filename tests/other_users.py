"""How a test's own programs become another user of this machine."""

from __future__ import annotations

__all__ = ["BECOME"]

# the beginning of a program: its first argument is the user id. The user still reads this
# interpreter and project, wherever root has them.
BECOME = """
import ctypes, os, struct, sys
KEEP_CAPABILITIES, READ_AND_SEARCH = 8, 1 << 2
uid = int(sys.argv.pop(1))
if uid:
    kernel = ctypes.CDLL(None, use_errno=True)
    kernel.prctl(KEEP_CAPABILITIES, 1, 0, 0, 0)
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
    sets = struct.pack("6I", READ_AND_SEARCH, READ_AND_SEARCH, 0, 0, 0, 0)
    assert kernel.capset(struct.pack("Ii", 0x20080522, 0), sets) == 0
"""
