"""What each task of a step runs: one command, or with `--multi-prog` what a file says.

A line of the file has tasks (`0`, `1-3,5`, `*` for all that are left), a program and its arguments;
`%t` stands for the number of the task, `%o` for its place among those of the line.
"""

from __future__ import annotations

import shlex

from dlsched.job.errors import JobError
from dlsched.job.srun.options import Given, WrongUse

__all__ = ["argv_of"]


def argv_of(given: Given, tasks: int) -> tuple[str, ...]:
    """Return the command that every task executes.

    Raises:
        JobError: the file of `--multi-prog` cannot be read, or is wrong.
    """
    if "multi_prog" not in given.said:
        return tuple(given.command)
    path = given.command[0]
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().replace("\\\n", " ").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
        raise JobError(f"--multi-prog: {path}: {why}") from None
    given.said.setdefault("job_name", path.rpartition("/")[2])
    commands = _commands(path, lines, tasks)
    same: dict[str, list[int]] = {}
    for task, command in sorted(commands.items()):
        same.setdefault(command, []).append(task)
    cases = [f"{'|'.join(map(str, of))}) exec {command};;" for command, of in same.items()]
    return ("/bin/sh", "-c", "\n".join(['case "$RANK" in', *cases, "esac"]))


def _commands(path: str, lines: list[str], tasks: int) -> dict[int, str]:
    """The command of each task, as a line for the shell.

    Raises:
        WrongUse: a line is wrong, or a task has none.
    """
    found: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        place = f"--multi-prog: {path}:{number}"
        try:
            words = [] if line.lstrip().startswith("#") else shlex.split(line)
        except ValueError as error:  # quotes without an end
            raise WrongUse(f"{place}: {str(error).lower()}") from None
        if not words:
            continue
        if len(words) == 1:
            raise WrongUse(f"{place}: has no program")
        of = _tasks(place, words[0], [task for task in range(tasks) if task not in found], tasks)
        for offset, task in enumerate(of):
            if task in found:
                raise WrongUse(f"{place}: task {task} has a program already")
            texts = (word.replace("%t", str(task)).replace("%o", str(offset)) for word in words[1:])
            found[task] = shlex.join(texts)
    left = [task for task in range(tasks) if task not in found]
    if left:
        raise WrongUse(f"--multi-prog: {path}: no line for task {left[0]} of {tasks}")
    return found


def _tasks(place: str, text: str, rest: list[int], tasks: int) -> list[int]:
    """The tasks that a line is for."""
    if text == "*":
        return rest
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = (first, last if dash else first)
        numbers = all(end.isascii() and end.isdigit() and len(end) < 8 for end in ends)
        if not numbers or int(ends[1]) < int(ends[0]):
            raise WrongUse(f"{place}: {text!r} are no tasks (0, 1-3,5 or *)")
        if int(ends[1]) >= tasks:
            raise WrongUse(f"{place}: task {ends[1]}: the tasks are 0 to {tasks - 1}")
        found += range(int(ends[0]), int(ends[1]) + 1)
    return found
