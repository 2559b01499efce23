"""Bounds of short tasks: lines for the shell that the elements of an array share."""

from __future__ import annotations

MOST_TASKS = 100_000
LONGEST_LINE = 4096  # bytes
MOST_BYTES = 4 * 1024 * 1024  # of all lines
COMMAND = "dlsched-tasks"  # stands for the program that executes them


def line_fault(line: str) -> str:
    """What is wrong with a task's line; empty: nothing."""
    if not line.strip():
        return "empty"
    if "\0" in line or "\n" in line:
        return "not one line of text"
    if len(line.encode("utf-8", "surrogateescape")) > LONGEST_LINE:
        return f"longer than {LONGEST_LINE} bytes"
    return ""
