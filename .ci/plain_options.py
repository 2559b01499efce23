"""The table of options that `dlsched.cli.plain_lines` reads, from the commands themselves.

python .ci/plain_options.py --write     # brings it up to date; a test holds it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import typer

from dlsched.cli.command_table import COMMANDS
from dlsched.cli.typer_app import app
from dlsched.record import Record, field_names

TABLE = Path(__file__).parent.parent / "dlsched" / "cli" / "plain_options.py"
FREQUENT = ("submit", "queue", "show", "cancel", "hold", "release", "requeue", "suspend", "resume")
HEAD = '''"""The options of frequent commands for `plain_lines`, made by .ci/plain_options.py."""

from __future__ import annotations

COMMANDS = {
'''


def table() -> str:
    """The module with a text for each command."""
    top: Any = typer.main.get_command(app)
    found = HEAD
    for name in FREQUENT:
        lines = "".join(f"{line}\n" for line in _lines(name, top))
        found += f'    "{name}": """\n{lines}""",\n'
    return found + "}\n"


def _lines(name: str, top: Any) -> Iterator[str]:
    module, _, function = COMMANDS[name].target.partition(":")
    hints = get_type_hints(getattr(import_module(f"dlsched.cli.{module}"), function))
    groups = {
        parameter: kind
        for parameter, kind in hints.items()
        if isinstance(kind, type) and issubclass(kind, Record)
    }
    places = {
        field: f"{group}.{field}" for group, kind in groups.items() for field in field_names(kind)
    }
    yield f"function {module} {function}"
    command = top.get_command(typer.Context(top), name)
    for param in command.params:
        if param.param_type_name == "argument":
            how = "required" if param.required else "any"
            yield f"words {param.name} {'command' if COMMANDS[name].takes_command else how}"
    yield from (f"group {group} {kind.__name__}" for group, kind in groups.items())
    for param in command.params:
        if param.param_type_name == "option":
            place = places.get(param.name, param.name)
            yield from (f"{kind} {place} {' '.join(words)}" for kind, words in _spellings(param))


def _spellings(option: Any) -> Iterator[tuple[str, list[str]]]:
    """The kind and the spellings of an option; none where only typer can read it."""
    special = (option.callback, option.envvar, option.is_eager, option.nargs != 1, option.required)
    if any(special) or getattr(option, "prompt", None):
        return
    if option.is_flag:
        yield "yes", option.opts
        if option.secondary_opts:
            yield "no", option.secondary_opts
    elif repr(option.type) == "STRING":
        yield "many" if option.multiple else "value", option.opts


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit(__doc__)
    TABLE.write_text(table())
