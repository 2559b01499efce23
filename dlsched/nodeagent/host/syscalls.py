"""System calls that the standard library does not have.

Each raises OSError like those in `os`. Only processes with one thread use them.
"""

from __future__ import annotations

import ctypes
import os
import struct

_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NAME = 1, 8, 15
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 36, 38, 47
_PR_CAP_AMBIENT_RAISE = 2
_CAPABILITIES_V3 = 0x20080522
CAP_SYS_PTRACE = 19
_OPENAT2 = 437  # on every architecture
_AT_FDCWD, _RESOLVE_NO_MAGICLINKS, _PROC_SUPER_MAGIC = -100, 0x02, 0x9FA0
_MS_REC, _MS_SLAVE, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 0x4000, 1 << 19, 2, 4, 8
_TFD_NONBLOCK, _TFD_CLOEXEC, _TFD_TIMER_ABSTIME = 0o4000, 0o2000000, 1
_CLOCK_BOOTTIME = 7
_TIOCSCTTY, _TIOCSWINSZ = 0x540E, 0x5414  # on x86-64 and 64-bit ARM
_IN_MOVED_TO, _IN_NONBLOCK, _IN_CLOEXEC = 0x80, 0o4000, 0o2000000


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _prctl(option: int, value: int, argument: int = 0) -> None:
    long = ctypes.c_ulong
    _check(_libc.prctl(option, long(value), long(argument), long(0), long(0)), "prctl")


def become_subreaper() -> None:
    """Make the orphans among the descendants of this process its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal: int) -> None:
    """Have this process signalled when its parent ends; a change of user id clears it."""
    _prctl(_PR_SET_PDEATHSIG, signal)


def forbid_new_privileges() -> None:
    """Keep this process from ever gaining rights by a set-uid program."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def keep_capabilities_over_setuid() -> None:
    """Let the next change of user id leave the permitted capabilities; `set_capabilities` cuts."""
    _prctl(_PR_SET_KEEPCAPS, 1)


def set_capabilities(*kept: int) -> None:
    """Give up all capabilities but some; these stay over the execution of a program, too."""
    words = [0] * 6  # effective, permitted, inheritable: the low words, then the high ones
    for number in kept:
        for kind in range(3):
            words[kind] |= 1 << number
    header = struct.pack("Ii", _CAPABILITIES_V3, 0)
    _check(_libc.capset(header, struct.pack("6I", *words)), "capset")
    for number in kept:
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, number)


def open_without_magic_links(path: bytes, flags: int, mode: int) -> int:
    """Open a path as `os.open` does, but follow no link that the kernel makes up.

    Those are the links of /proc to a process's working directory, root, files and namespaces.
    """
    how = struct.pack("QQQ", flags, mode if flags & os.O_CREAT else 0, _RESOLVE_NO_MAGICLINKS)
    number, size = ctypes.c_long(_OPENAT2), ctypes.c_size_t(len(how))
    fd = _libc.syscall(number, ctypes.c_int(_AT_FDCWD), ctypes.c_char_p(path), how, size)
    return _check(fd, "openat2")


def is_on_proc(fd: int) -> bool:
    """Whether an open file is one of /proc."""
    found = ctypes.create_string_buffer(256)  # larger than the structure; it begins with the type
    _check(_libc.fstatfs(fd, found), "fstatfs")
    return ctypes.c_long.from_buffer(found).value == _PROC_SUPER_MAGIC


def set_name(name: str) -> None:
    """Set what `ps` shows as this process's command."""
    buffer = ctypes.create_string_buffer(name.encode()[:15])
    _libc.prctl(_PR_SET_NAME, buffer, 0, 0, 0)


def return_free_memory() -> None:
    """Return free memory of the heap to the system, where the C library can."""
    trim = getattr(_libc, "malloc_trim", None)
    if trim is not None:
        trim(0)


def take_terminal(fd: int) -> None:
    """Have a terminal control this process, the first of its session."""
    _check(_libc.ioctl(fd, ctypes.c_ulong(_TIOCSCTTY), ctypes.c_ulong(0)), "terminal")


def resize_terminal(fd: int, rows: int, columns: int) -> None:
    """Set the size of a terminal; the kernel tells its foreground processes."""
    size = struct.pack("HHHH", rows, columns, 0, 0)
    _check(_libc.ioctl(fd, ctypes.c_ulong(_TIOCSWINSZ), size), "terminal")


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name."""
    _check(_libc.unshare(flags), "unshare")


def setns(fd: int, kind: int) -> None:
    """Enter the namespace of a descriptor."""
    _check(_libc.setns(fd, kind), "setns")


def mount_own_proc() -> None:
    """Mount a /proc of this process's process-id namespace, for this process and its children."""
    unshare(CLONE_NEWNS)
    slave = ctypes.c_ulong(_MS_REC | _MS_SLAVE)
    _check(_libc.mount(b"none", b"/", None, slave, None), "mount /")
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    _check(_libc.mount(b"proc", b"/proc", b"proc", flags, None), "mount /proc")


def make_timer() -> int:
    """Return a descriptor that becomes readable at a time that `set_timer` sets."""
    flags = _TFD_NONBLOCK | _TFD_CLOEXEC
    return _check(_libc.timerfd_create(_CLOCK_BOOTTIME, flags), "timerfd_create")


def set_timer(fd: int, at: float | None) -> None:
    """Set the time of a timer in seconds since the boot; None: never; a past time: now."""
    when = 0.0 if at is None else max(at, 1e-6)
    seconds = int(when)
    value = struct.pack("qqqq", 0, 0, seconds, int((when - seconds) * 1e9))
    _check(_libc.timerfd_settime(fd, _TFD_TIMER_ABSTIME, value, None), "timerfd_settime")


def watch_folder(path: str) -> int:
    """Return a descriptor that becomes readable when a file is moved into a folder."""
    fd = _check(_libc.inotify_init1(_IN_NONBLOCK | _IN_CLOEXEC), "inotify_init1")
    try:
        _check(_libc.inotify_add_watch(fd, os.fsencode(path), _IN_MOVED_TO), "inotify_add_watch")
    except OSError:
        os.close(fd)
        raise
    return fd
