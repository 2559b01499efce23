"""A folder that its user removes while a process of the job starts there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dlsched.nodeagent.ranks import child_process

PROGRAM = """
import os, sys
from dlsched.nodeagent.ranks import child_process

folder = sys.argv[1]
os.chdir(folder)
os.rmdir(folder)
process = child_process.ProcessSpec(
    argv=("true",), environment={}, working_directory=folder, output="", error=""
)
pid, pipe = child_process.fork(lambda _started: child_process._execute(process))
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(code, os.read(pipe, 1000).decode())
"""


def test_it_is_the_job_s_fault_and_not_the_node_s(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    why = f"cannot enter working directory {folder}: No such file or directory"
    assert done.stdout == f"{child_process.CANNOT_START} {why}\n"
