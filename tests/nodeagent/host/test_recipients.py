"""Which processes of a real tree get a signal: what each has started, and what it handles."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlsched.nodeagent.host import processes
from dlsched.nodeagent.host.recipients import Tree

# a process that says its name and id, handles signals if told to, and starts what is below it
HANDLES = "import signal\nfor n in (10, 15): signal.signal(n, lambda *_: None)\n"
SAYS = "import os, sys, time\nos.write(1, f'{name} {os.getpid()}\\n'.encode())\n"
TRAINING = (
    f"name = 'training'\n{HANDLES}{SAYS}"
    "if os.fork() == 0:\n    os.write(1, f'worker {os.getpid()}\\n'.encode())\n"
    "else:\n    import subprocess; subprocess.Popen([sys.executable, '-c', sys.argv[1]])\n"
    "time.sleep(600)\n"
)
RANK = f"name = 'rank'\n{HANDLES}{SAYS}time.sleep(600)\n"
PLAIN = (
    f"name = 'plain'\n{SAYS}import subprocess\n"
    "subprocess.run([sys.executable, '-c', *sys.argv[1:]])\n"
)
NAMES = {"shell", "plain", "training", "worker", "rank"}


@contextmanager
def tree(traps: bool) -> Iterator[dict[str, int]]:
    """A shell over a plain process over a training with a forked worker and a rank; ids by name."""
    words = [sys.executable, "-c", PLAIN, TRAINING, RANK]
    trap = "trap : USR1 TERM; " if traps else ""
    script = f'{trap}echo shell $$; "$@"; true'
    shell = subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", *words], stdout=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    try:
        ids: dict[str, int] = {}
        while ids.keys() != NAMES:
            name, pid = shell.stdout.readline().split()
            ids[name] = int(pid)
        yield ids
    finally:
        for each in [*processes.descendants(shell.pid), processes.stat(shell.pid)]:
            if each is not None:
                os.kill(each.pid, signal.SIGKILL)
        shell.communicate()


@pytest.mark.parametrize(
    ("traps", "number", "handle", "others"),
    [
        (False, signal.SIGTERM, {"training"}, {"shell", "plain"}),
        (True, signal.SIGTERM, {"shell", "training"}, {"plain"}),
        (False, signal.SIGUSR1, {"training", "rank"}, {"shell", "plain"}),
        (True, signal.SIGUSR1, {"shell", "training", "rank"}, {"plain"}),
        (True, signal.SIGUSR2, set(), NAMES),
        (True, signal.SIGKILL, set(), NAMES),
    ],
)
def test_a_signal_goes_down_to_the_first_that_handles_it(
    traps: bool, number: int, handle: set[str], others: set[str]
) -> None:
    with tree(traps) as ids:
        found = processes.stat(ids["shell"])
        assert found is not None
        now = Tree([found, *processes.descendants(found.pid)])
        named = {pid: name for name, pid in ids.items()}
        for below in (None, [ids["shell"]]):
            got = [
                (named[each.pid], handles) for each, handles in now.recipients(number, below, ())
            ]
            assert {name for name, handles in got if handles} == handle
            assert {name for name, handles in got if not handles} == others
            assert len(got) == len(handle | others)  # each once
        inner = now.recipients(number, [ids["rank"]], ())
        assert [named[each.pid] for each, _ in inner] == ["rank"]
        spared = now.recipients(number, None, {ids["training"]})
        assert "training" not in {named[each.pid] for each, _ in spared}
