"""A function of the site, by its name: `module:function`, or `/path/of/file.py:function`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import stat
from collections.abc import Callable
from functools import cache

from dlsched.core.errors import BadInput

Asked = dict[str, object]  # fields and values: JSON


def file_of(name: str) -> str:
    """The file that a name says; empty for a module's."""
    place = name.rpartition(":")[0]
    return place if place.startswith("/") else ""


def check_site_function(name: str) -> None:
    """Refuse a file that is not there, or that others than root and this user can write.

    Raises:
        BadInput: one line that says why.
    """
    place, mark, function = name.rpartition(":")
    if not (mark and place and function.isidentifier()):
        raise BadInput(f"{name!r} is neither MODULE:FUNCTION nor /PATH/OF/FILE.py:FUNCTION")
    if not (file := file_of(name)):
        return
    try:
        found = os.stat(file)
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from None
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadInput(f"{file} can be written by others: chown root, chmod go-w")


@cache
def _loaded(name: str) -> Callable[[str, str, Asked], object]:
    check_site_function(name)
    place, _, function = name.rpartition(":")
    if file_of(name):
        spec = importlib.util.spec_from_file_location("dlsched_site_filter", place)
        if spec is None or spec.loader is None:
            raise BadInput(f"{place}: not a file of Python (.py)")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(place)
    found: Callable[[str, str, Asked], object] = getattr(module, function)
    return found


def ask_site(question: bytes) -> bytes:
    """Call the site's function for each thing that is asked.

    Returns:
        as JSON, for each a text, which refuses it, or an object of changes with notes.

    Raises:
        BadInput: there is no such function, or it has returned something else.
    """
    asked = json.loads(question)
    function, answers = _loaded(asked["filter"]), []
    for each in asked["asked"]:
        answer = function(asked["action"], asked["user"], each)
        if not isinstance(answer, str | dict | None):
            raise BadInput(f"it returned {answer!r:.60}: None, a dict or a refusing text")
        answers.append({} if answer is None else answer)
        if isinstance(answer, str):
            break
    return json.dumps(answers).encode()
