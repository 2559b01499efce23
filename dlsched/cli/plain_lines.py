"""Plain command lines of frequent commands, read without typer.

Loading typer costs a short command as much as all else that it does. A line is plain when each of
its options is in the generated table, has its full name and has its value; typer would call the
same function with the same values. All other lines are typer's: `--help`, numbers, flags in one
word (`-ar`), completion and wrong usage, so that its messages are the only ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from dlsched.cli.plain_options import COMMANDS

_Given = dict[str, Any]  # arguments of a command's function


def plain_call(words: list[str]) -> Callable[[], None] | None:
    """The call that the words of a command line make; None: they are not plain."""
    if not words or words[0] not in COMMANDS:
        return None
    command = _Command(COMMANDS[words[0]])
    given = command.read(words[1:])
    return None if given is None else command.call(given)


class _Command:
    """A command of the table.

    Each line of its text begins with what it is about: the `function`, the parameter that takes the
    `words` that are no options, a `group` of options with its class, or the kind of an option with
    its parameter and its spellings.
    """

    def __init__(self, text: str) -> None:
        self.module = self.function = self.words = ""
        self.how_words = "none"  # `any`, `required`, or `command`: the first ends the options
        self.groups: dict[str, str] = {}
        self.options: dict[str, tuple[str, str]] = {}  # kind and parameter, by spelling
        for line in text.split("\n")[1:-1]:
            kind, first, *rest = line.split()
            if kind == "function":
                self.module, self.function = first, rest[0]
            elif kind == "words":
                self.words, self.how_words = first, rest[0]
            elif kind == "group":
                self.groups[first] = rest[0]
            else:
                self.options.update(dict.fromkeys(rest, (kind, first)))

    def read(self, line: list[str]) -> _Given | None:
        """The values that a line gives, by parameter or `group.field`; None: it is not plain."""
        given: _Given = {}
        plain: list[str] = []
        words = iter(line)
        for word in words:
            if word == "--":
                plain += words
                if plain and self.how_words == "command":
                    plain.insert(0, word)
            elif word[:1] != "-" or word == "-":
                plain.append(word)
                if self.how_words == "command":
                    plain += words
            elif not self._take(word, words, given):
                return None
        if plain:
            given[self.words] = plain
        fits = self.how_words != "none" if plain else self.how_words != "required"
        return given if fits else None

    def _take(self, word: str, words: Iterator[str], given: _Given) -> bool:
        """Take an option, and the next word where that is its value; False: typer must read it."""
        if word.startswith("--"):
            name, sign, value = word.partition("=")
        else:
            name, sign, value = word[:2], word[2:], word[2:]
        kind, parameter = self.options.get(name, ("", ""))
        if kind in ("yes", "no"):
            given[parameter] = kind == "yes"
            return not sign
        if not sign:
            value = next(words, "--")
        if not kind or (value == "--" and not sign):
            return False
        if kind == "many":
            given.setdefault(parameter, []).append(value)
        else:
            given[parameter] = value
        return True

    def call(self, given: _Given) -> Callable[[], None]:
        """The call of the command's function."""
        module = import_module(f"dlsched.cli.{self.module}")
        for group, kind in self.groups.items():
            begin = f"{group}."
            fields = {name: given.pop(name) for name in list(given) if name.startswith(begin)}
            given[group] = getattr(module, kind)(
                **{name.removeprefix(begin): value for name, value in fields.items()}
            )
        return partial(getattr(module, self.function), **given)
