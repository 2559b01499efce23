"""A process that has imported what the ranks of a test import, and becomes a rank when it is asked.

An import of PyTorch takes longer than most of what these ranks do. Its words are the descriptor of
the socket at which it is asked, and the modules.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import signal
import socket
import sys
import warnings
from importlib import import_module
from typing import Any


def asked() -> tuple[dict[str, Any], list[int]]:
    """Return, in a process of its own, what a rank is to be and where it writes.

    Raises:
        SystemExit: nothing more will be asked.
    """
    with socket.socket(fileno=int(sys.argv[1])) as door:
        while True:
            text, descriptors, _, _ = socket.recv_fds(door, 1 << 20, 3)
            if not text:
                raise SystemExit
            if os.fork() == 0:
                return json.loads(text), descriptors
            for each in descriptors:
                os.close(each)


def tell_end(rank: int, told: int) -> None:
    """Tell the process id of a rank, and its exit code when it has ended."""
    os.write(told, b"%d\n" % rank)
    _, status = os.waitpid(rank, 0)
    os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))


def main() -> None:
    """Import, and then be a rank."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in sys.argv[2:]:
            import_module(name)
        gc.collect()
        gc.freeze()  # at its end a rank would copy each page that a collection touches
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # its children wait for the ranks
        wanted, (out, err, told) = asked()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        rank = os.fork()
    if rank:
        os.close(out)
        os.close(err)
        tell_end(rank, told)
        os._exit(0)
    os.close(told)
    os.setsid()
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.close(out)
    os.close(err)
    os.chdir(wanted["folder"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.argv = wanted["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")


main()
