"""`--export`: which of the caller's variables the job gets.

What a surrounding job was told about itself never goes along: a job submitted from inside another
one would take itself for that one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from dlsched.client.submission.texts import check_words
from dlsched.core.errors import BadInput, shorten
from dlsched.jobs.sweep import OF_CLIENTS, RUNTIME_NAMES

# names of variables, and those under which bash exports functions, such as `module` of Lmod
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|BASH_FUNC_[^\s=%,]+%%", re.ASCII)
_OF_A_SHELL = {"_", "SHLVL", "OLDPWD"}


def exported(what: str, choice: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the job's variables.

    `choice` is `ALL`, `NONE`, or names and NAME=VALUE joined by commas, with or without ALL; `what`
    names the option in errors.

    Raises:
        BadInput: a malformed name, a value that cannot be sent, or too much of it.
    """
    words = [word for word in _split(choice) if word]
    upper = {word.upper() for word in words}
    everything = "ALL" in upper
    chosen = _of_caller(variables) if everything or not words else {}
    for word in words:
        name, equals, value = word.partition("=")
        if word.upper() in {"ALL", "NONE", "NIL"}:
            continue
        if not _NAME.fullmatch(name):
            raise BadInput(f"{what}: {shorten(name)!r} is not the name of a variable")
        if equals:
            chosen[name] = value
        elif name in variables:
            chosen[name] = variables[name]
    for name, value in chosen.items():
        check_words(f"environment variable {shorten(name)} (leave it out with --export)", [value])
    check_words("environment", [f"{name}={value}" for name, value in chosen.items()])
    return chosen


def _of_caller(variables: Mapping[str, str]) -> dict[str, str]:
    inside = "DLSCHED_JOB_ID" in variables
    return {
        name: value
        for name, value in variables.items()
        if _NAME.fullmatch(name)
        and name not in _OF_A_SHELL
        and not (name.startswith("DLSCHED_") and name not in OF_CLIENTS)
        and not name.startswith("SLURM_")
        and not (inside and name in RUNTIME_NAMES)
    }


def _split(choice: str) -> list[str]:
    """Commas separate; a value may hold them between single or double quotes, as in Slurm."""
    words, word, quote = [], "", ""
    for letter in choice:
        if quote:
            if letter == quote:
                quote = ""
            else:
                word += letter
        elif letter in "'\"":
            quote = letter
        elif letter == ",":
            words.append(word)
            word = ""
        else:
            word += letter
    return [*words, word]
