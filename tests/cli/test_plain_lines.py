"""Plain lines call what typer would call, with the same values; all other lines are typer's."""

from __future__ import annotations

import functools
import inspect
import runpy
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dlsched.cli.plain_lines import _Command, plain_call
from dlsched.cli.plain_options import COMMANDS
from dlsched.cli.typer_app import app
from dlsched.core.errors import BadInput

WRITER = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "plain_options.py"))
TABLE = {name: _Command(text) for name, text in COMMANDS.items()}
VALUES = ("x", "", "-", "--", "-5", "--json", "a=b", "7_[2-3]", "zwölf", "1,2", " ", "-G", "help")
STRANGE = ("--help", "--nam", "--no-such", "-ar", "-rt", "-Z", "---", "--=x", "-=x", "--json=yes")


class Called(Exception):
    """What a command's function was called with."""


def arguments(function: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What a function gets, with its defaults; without further options that say nothing."""
    bound = inspect.signature(function).bind(**given)
    bound.apply_defaults()
    further = bound.arguments.get("given", {})
    bound.arguments["given"] = {name: value for name, value in further.items() if value}
    return {name: value or None for name, value in bound.arguments.items()}


@functools.cache
def by_typer(name: str) -> Callable[[list[str]], dict[str, Any] | None]:
    """What typer calls a command's function with, from a line; None where it refuses the line."""
    command = TABLE[name]
    module = import_module(f"dlsched.cli.{command.module}")
    function = getattr(module, command.function)

    @functools.wraps(function)
    def noted(**given: Any) -> None:
        raise Called(arguments(function, given))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, command.function, noted)
        top: Any = typer.main.get_command(app)
        top.get_command(typer.Context(top), name)

    def call(line: list[str]) -> dict[str, Any] | None:
        try:
            top.main([name, *line], standalone_mode=False)
        except Called as called:
            return called.args[0]  # type: ignore[no-any-return]
        except Exception as error:
            if not isinstance(error, BadInput) and not hasattr(error, "format_message"):
                raise  # it is no wrong use
            return None
        return None  # `--help`

    return call


def plainly(name: str, line: list[str]) -> dict[str, Any] | None:
    """What a plain line calls a command's function with; None where it is not plain."""
    call: Any = plain_call([name, *line])
    return None if call is None else arguments(call.func, call.keywords)


def lines(name: str) -> st.SearchStrategy[list[str]]:
    """Lines of right and wrong words of a command."""
    options = st.sampled_from(sorted(TABLE[name].options))
    values = st.sampled_from(VALUES) | st.text(max_size=3)
    word = (
        options.map(lambda option: [option])
        | st.tuples(options, values).map(list)
        | st.tuples(options, st.sampled_from(("", "=")), values).map(lambda all_: ["".join(all_)])
        | values.map(lambda value: [value])
        | st.sampled_from(STRANGE).map(lambda strange: [strange])
    )
    return st.lists(word, max_size=5).map(lambda parts: [each for part in parts for each in part])


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plain_line_is_read_as_typer_reads_it(name):
    @given(line=lines(name))
    @example(line=[])
    @example(line=["--", "-x", "--", "y"])
    @example(line=["7", "--", "8"])
    @settings(max_examples=100)
    def check(line: list[str]) -> None:
        read = plainly(name, line)
        assert read is None or read == by_typer(name)(line)

    check()


@pytest.mark.parametrize("name", COMMANDS)
def test_each_spelling_of_the_table_is_plain(name):
    command = TABLE[name]
    words = {"none": [], "any": [], "required": ["7"], "command": ["--", "true", "-x", "--"]}
    ends = words[command.how_words]
    for option, (kind, _) in command.options.items():
        if kind in ("yes", "no"):
            forms = [[option], [option, option]]
        else:
            joined = f"{option}=v" if option.startswith("--") else f"{option}v"
            forms = [[option, "v"], [joined], [option, "a", option, "b"], [option, "-v"]]
        for form in forms:
            read = plainly(name, [*form, *ends])
            assert read is not None
            assert read == by_typer(name)([*form, *ends])


def test_a_single_dash_is_a_word():
    assert plainly("submit", ["-", "--x"]) == by_typer("submit")(["-", "--x"])
    assert plainly("show", ["-"]) == by_typer("show")(["-"])


@pytest.mark.parametrize(
    "line",
    [
        [],
        ["--help"],
        ["--version"],
        ["nodes"],
        ["queue", "--help"],
        ["queue", "x"],
        ["queue", "--watch", "1"],
        ["queue", "-ar"],
        ["queue", "--nam", "x"],
        ["queue", "--json=1"],
        ["queue", "--name"],
        ["show"],
        ["show", "7", "--page", "2"],
        ["show", "-5"],
        ["submit", "--name", "--", "true"],
    ],
    ids=" ".join,
)
def test_all_other_lines_are_typers(line):
    assert plain_call(line) is None


def test_the_table_is_of_the_commands():
    """`python .ci/plain_options.py --write` brings it up to date."""
    assert WRITER["TABLE"].read_text() == WRITER["table"]()
