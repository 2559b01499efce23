"""A keeper learns of each change of the node lease, whatever the kernel can still tell."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from dlsched.nodeagent.host import syscalls
from dlsched.nodeagent.host.event_loop import EventLoop
from dlsched.nodeagent.keeper.lease_watch import LOOKS_EVERY_S, LeaseWatch
from dlsched.nodeagent.keeper.run_files import LeaseFile, write_lease
from dlsched.system import clock


def renew(folder: Path, until: float) -> None:
    write_lease(str(folder), LeaseFile(until=until, covers=frozenset(), by_leader=True))


def test_without_inotify_the_lease_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(_path: str) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(syscalls, "watch_folder", none_left)
    changes: list[float] = []
    watch = LeaseWatch(EventLoop(lambda: None), str(tmp_path), 5.0, lambda: changes.append(1.0))
    watch.begin()
    now = watch.deadline
    assert now is not None
    watch.wake(now)  # there is no lease yet
    assert not changes
    for count in range(1, 4):
        renew(tmp_path, 100.0 + count)
        now = watch.deadline
        assert now is not None
        watch.wake(now - 0.1)
        assert len(changes) == count - 1
        watch.wake(now)
        watch.wake(now)
        assert len(changes) == count
        assert watch.deadline == now + LOOKS_EVERY_S


def test_with_inotify_nothing_is_looked_at(tmp_path: Path) -> None:
    changes: list[float] = []
    loop = EventLoop(lambda: None)
    watch = LeaseWatch(loop, str(tmp_path), 5.0, lambda: changes.append(1.0))
    watch.begin()
    watch.begin()  # the folder may be another one
    assert watch.deadline is None
    renew(tmp_path, 100.0)
    loop.turn(clock.boottime() + 60.0)
    assert changes == [1.0]
