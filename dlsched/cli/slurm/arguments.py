"""The command lines of Slurm's listings and actions: one parser, one way to refuse."""

from __future__ import annotations

import argparse
import os
import pwd
from collections.abc import Sequence
from typing import Any, NoReturn

from dlsched.core.errors import BadInput


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
        return found

    def error(self, message: str) -> NoReturn:
        """Refuse."""
        raise BadInput(message)


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
