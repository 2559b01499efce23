"""`--tasks FILE --tokens N`: short tasks that the elements of an array share."""

from __future__ import annotations

import os.path
from collections.abc import Mapping

from dlsched.client.submission.table_files import decoded
from dlsched.client.submission.texts import whole_number
from dlsched.core.errors import BadInput
from dlsched.jobs import short_tasks as limits
from dlsched.rpc import messages

MOST_TOKENS = 100_000  # a site allows less


def put_short_tasks(
    request: messages.JobRequest, options: Mapping[str, str], directory: str
) -> None:
    """Put the tasks of a file into a request, whose array are the tokens.

    Empty lines, and those that begin with `#`, are no tasks.

    Raises:
        BadInput: an option or the file is wrong.
    """
    if "tasks" not in options:
        raise BadInput("--tokens: only with --tasks")
    for key in ("array", "sweep"):
        if key in options:
            raise BadInput(f"--{key}: not together with --tasks")
    if tuple(request.argv) != (limits.COMMAND,) or request.script:
        raise BadInput("--tasks: without a script or a command; the lines of the file are commands")
    if request.container:
        raise BadInput("--tasks: not together with --container; let each task start its own")
    if "tokens" not in options:
        raise BadInput("--tasks: needs --tokens N, how many run at once")
    tokens = whole_number("--tokens", options["tokens"], least=1, most=MOST_TOKENS)
    name = options["tasks"]
    for number, line in enumerate(_text(name, directory).splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if fault := limits.line_fault(line):
            raise BadInput(f"{name}:{number}: {fault}")
        if len(request.tasks) == limits.MOST_TASKS:
            raise BadInput(f"{name}:{number}: more than {limits.MOST_TASKS} tasks")
        request.tasks.append(line)
    if not request.tasks:
        raise BadInput(f"{name}: has no tasks")
    request.array = f"0-{min(tokens, len(request.tasks)) - 1}"


def _text(name: str, directory: str) -> str:
    try:
        with open(os.path.join(directory, os.path.expanduser(name)), "rb") as file:
            data = file.read(limits.MOST_BYTES + 1)
    except OSError as error:
        raise BadInput(f"--tasks: {name}: can't be read ({error.strerror})") from None
    except ValueError:
        raise BadInput(f"--tasks: {name!a}: not a path") from None
    if len(data) > limits.MOST_BYTES:
        raise BadInput(f"{name}: more than {limits.MOST_BYTES} bytes")
    return decoded(name, data)
