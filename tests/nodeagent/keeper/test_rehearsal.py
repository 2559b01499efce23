"""The run of nothing that a zygote keeps before it forks keepers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import os, signal, sys
from dlsched.nodeagent.keeper import rehearsal, run_files
ends = []
genuine = run_files.RunFolder.end
def end(self, record):
    ends.append(record.reason.value)
    genuine(self, record)
run_files.RunFolder.end = end
before = set(os.listdir("/proc/self/fd"))
rehearsal.rehearse(sys.argv[1])
assert set(os.listdir("/proc/self/fd")) == before
assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
assert signal.set_wakeup_fd(-1) == -1
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(*ends)
"""


def test_a_rehearsal_goes_to_the_end_of_its_runs_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout.split(), done.stderr) == (["exited", "exited"], "")
