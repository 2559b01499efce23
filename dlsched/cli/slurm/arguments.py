"""The command lines of Slurm's listings and actions: one parser, one way to refuse."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Sequence
from typing import Any, NoReturn

from dlsched.core.errors import BadInput, shorten


class Arguments(argparse.ArgumentParser):
    """A parser whose errors are `BadInput`."""

    def __init__(self, program: str, help_: str) -> None:
        """Begin with the options that mean nothing here.

        Args:
            program: the command.
            help_: one line.
        """
        super().__init__(prog=program, description=help_, allow_abbrev=False, add_help=False)
        self.add_argument("--help", action="help", help="Show this and exit.")
        self.add_argument("-v", "--verbose", action="count", help=argparse.SUPPRESS)
        self.add_argument("-M", "--clusters", "--cluster", help=argparse.SUPPRESS)

    def option(self, *words: str, flag: bool = False, help: str = argparse.SUPPRESS) -> None:
        """Declare an option; a value that is given several times is joined by commas."""
        if flag:
            self.add_argument(*words, action="store_true", help=help)
        else:
            self.add_argument(*words, action="append", help=help)

    def as_json(self) -> None:
        """Declare `--json`, which may name a version of Slurm's data parser: there is one here."""
        told = "as JSON, in the shape of Slurm's data parser"
        self.add_argument("--json", nargs="?", const="yes", metavar="VERSION", help=told)

    def read(self, words: Sequence[str]) -> Any:
        """Read the words.

        Raises:
            BadInput: an option that is not known, or without its value.
        """
        todo: list[str] = []
        for word in words:  # `-S -t,i`: a value may begin with a minus sign
            if todo and todo[-1] in ("-S", "--sort") and word.startswith("-"):
                todo[-1] = f"--sort={word}"
            else:
                todo.append(word)
        found, rest = self.parse_known_args(todo)
        if rest:
            raise BadInput(f"{rest[0]}: not supported; --help lists what is")
        _check_cluster(found.clusters)
        return found

    def read_around(self, words: Sequence[str]) -> tuple[Any, list[str]]:
        """Read options that may stand anywhere; return them and the other words in order.

        Raises:
            BadInput: an option that is not known, or without its value.
        """
        found, rest = self.parse_known_args(list(words))
        for word in rest:
            if word.startswith("-"):
                raise BadInput(f"{word}: not supported; --help lists what is")
        _check_cluster(found.clusters)
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        raise BadInput(message)


def _check_cluster(text: str | None) -> None:
    """Refuse other clusters than the present one.

    Raises:
        BadInput: one is named.
    """
    names = {name.strip() for name in (text or "").split(",")} - {"", "all"}
    if names:
        from dlsched.cli.slurm.cluster import cluster_name  # noqa: PLC0415  # few name it

        for other in sorted(names - {cluster_name()}):
            raise BadInput(f"-M {shorten(other)}: this is cluster {cluster_name()}, and no other")


def joined(values: Sequence[str] | None) -> list[str]:
    """The words of an option, which may be given several times and hold commas."""
    return [word.strip() for text in values or () for word in text.split(",") if word.strip()]


def given_by(variable: str) -> list[str]:
    """What a user's variable says in place of an option, as SQUEUE_FORMAT; nothing without it."""
    found = os.environ.get(variable)
    return [found] if found else []


def own_name() -> str:
    """The name of the present user."""
    return pwd.getpwuid(os.getuid()).pw_name


def between(option: str, values: Sequence[str] | None) -> range | None:
    """The whole numbers that an option allows: `2`, `2-4`; None without it.

    Raises:
        BadInput: neither a number nor a range.
    """
    if not values:
        return None
    low, dash, high = values[-1].partition("-")
    numbers = low.isdecimal() and (not dash or high.isdecimal())
    if not numbers or int(high or low) < int(low):
        raise BadInput(f"{option}: {shorten(values[-1])!r} is not a number or a range (2, 2-4)")
    return range(int(low), int(high or low) + 1)


def seconds_between(values: Sequence[str] | None) -> float:
    """The pause of `-i`; 0 without it.

    Raises:
        BadInput: not a number above 0.
    """
    if not values:
        return 0.0
    try:
        found = float(values[-1])
    except ValueError:
        found = 0.0
    if not found > 0:
        raise BadInput(f"-i: {values[-1]!r} is not a number of seconds above 0")
    return found
