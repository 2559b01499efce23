"""The output options of commands that list something: JSON, columns, titles and colours."""

from __future__ import annotations

from typing import Annotated

from dlsched.cli.option_groups import option, typed
from dlsched.core.errors import BadInput
from dlsched.record import Record

AsJson = Annotated[bool, option("--json", "One JSON object.")]
ColourOption = Annotated[str, option("--color WHEN", "auto, always or never.")]


class JsonOptions(Record, kw_only=False):
    """The options of a command that prints a table or JSON."""

    as_json: AsJson = False
    as_lines: bool = typed("--jsonl", "One JSON object a line.", default=False)
    colour: ColourOption = "auto"

    @property
    def is_json(self) -> bool:
        """Is the output JSON, in one object or in lines?"""
        return self.as_json or self.as_lines


class ListingOptions(JsonOptions, kw_only=False):
    """The options of a command that lists rows in columns which the user can choose."""

    columns: str | None = typed("--format -o NAME,…", "Columns by name.")
    about_columns: str | None = typed("--columns help", "List the columns and exit.")
    no_header: bool = typed("--noheader -h", "Print no titles.", default=False)

    def check(self) -> None:
        """Refuse options that contradict each other.

        Raises:
            BadInput: `-o` or `--json` with another output option.
        """
        if self.columns is not None and self.is_json:
            raise BadInput("-o: JSON has all fields; leave it out")
        if self.as_json and self.as_lines:
            raise BadInput("--json and --jsonl: only one of them")
