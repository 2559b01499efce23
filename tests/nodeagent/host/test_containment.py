"""A job's processes are stopped at any moment, also while they start others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlsched.nodeagent.host.containment import Containment, Namespace, containment_of

# A keeper whose job starts a program by vfork. The child cannot have its program before its input
# can be opened: so the freeze comes between the two, whatever the machine does.
KEEPER = """
import os, subprocess, sys, time

from dlsched.nodeagent.host.containment import Containment

JOB = '''
import os, sys
opens = (os.POSIX_SPAWN_OPEN, 0, sys.argv[1], os.O_RDONLY, 0)
os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ, file_actions=[opens])
print("started", flush=True)
os.wait()
'''

def wait_for(what):
    until = time.monotonic() + 60
    while not what():
        assert time.monotonic() < until
        time.sleep(0.002)

def states():
    return "".join(sorted(each.state for each in job.members()))

job = Containment()
argv = [sys.executable, "-c", JOB, sys.argv[1]]
program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
try:
    wait_for(lambda: states() == "DS")  # one waits for the other
    job.freeze()
    wait_for(lambda: states() == "DT")
    assert not job.stands_still()
    there = os.open(sys.argv[1], os.O_RDWR)  # so that the child may go on
    assert job.settles(60)
    assert states() == "TT"
    job.thaw()
    assert program.stdout.readline() == "started\\n"
finally:
    job.kill()
print("done")
"""


def test_a_process_that_just_starts_another_is_stopped(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "input")
    done = subprocess.run(
        [sys.executable, "-c", KEEPER, str(tmp_path / "input")],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 0), done.stderr


@pytest.mark.parametrize(
    ("namespace", "pid", "kind"),
    [(True, 1, Namespace), (True, 2, Containment), (False, 1, Containment)],
)
def test_a_keeper_signals_every_process_it_sees_only_as_the_first_of_its_namespace(
    monkeypatch: pytest.MonkeyPatch, namespace: bool, pid: int, kind: type[Containment]
) -> None:
    monkeypatch.setattr(os, "getpid", lambda: pid)
    assert type(containment_of("", namespace)) is kind
