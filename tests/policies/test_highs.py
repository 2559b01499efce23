"""HiGHS as policies use it prints nothing, though a process's first solver would print a banner."""

import subprocess
import sys

PROGRAM = """
from dlsched.policies.highs import Limits, MixedProgram

program = MixedProgram()
items = [program.column(value, 0, 1, whole=True) for value in (5.0, 4.0, 3.0)]
program.row(0, 10, dict(zip(items, (6.0, 5.0, 5.0))))
for _ in range(2):
    x, value, _ = program.solve(Limits(), None)
    print(value)
"""


def test_standard_output_is_that_of_the_program_alone() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout.split() == ["7.0", "7.0"]
    assert ran.stderr == ""


def test_a_process_without_standard_output_solves_all_the_same() -> None:
    program = f"import os, sys; os.close(1); sys.stdout = sys.stderr\n{PROGRAM}"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    assert ran.stdout == ""
    assert ran.stderr.split() == ["7.0", "7.0"]
