"""What a row of the tables of tenants says: all about one field of one kind of tenant.

A field of a tenant's class that is made by `row` has a row; `rows_of` gives them. A name, and the
kind of a quota, have none: they are what a tenant is found by.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Form = Literal[
    "text",  # one line, most often the name of another tenant
    "hosts",  # a host list
    "names",  # several words
    "flag",
    "whole",  # a whole number
    "number",
    "seconds",  # a duration
    "moment",  # seconds since the epoch
]
UNSAID: dict[Form, Any] = {"text": "", "hosts": "", "names": (), "flag": False, "moment": 0.0}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What is said of one field.

    Attributes:
        name: of the field, on the wire, in JSON and of its column in the database.
        form: how texts are read, values are checked, shown and stored.
        words: how its option is spelled, with what stands for the value: `--gpus -G N`; empty: it
            has no option of its own.
        help: one line for `--help`.
        default: the value of a tenant that does not say it.
        least: the smallest number allowed.
        most: the largest number allowed.
        above_zero: the number must be above 0.
        bare: what a duration without a unit counts on the command line.
        key: its key in the daemon's file and in cluster files.
        names: the kind of tenants that it names, which must exist; empty: none.
        label: what errors call a tenant that it names.
        settable: whether an operator may set it.
        members: it is kept in the table of an account's members, not in a column.
        live_only: only a live cluster applies it; a replay takes what the trace says.
        filled: its column came with a migration that filled the rows of before.
    """

    name: str = ""
    form: Form
    words: str = ""
    help: str = ""
    default: Any = None
    least: float = 0.0
    most: float = 1e12
    above_zero: bool = False
    bare: Literal["minutes", "seconds"] = "minutes"
    key: str = ""
    names: Literal["", "account", "vc", "class"] = ""
    label: str = ""
    settable: bool = True
    members: bool = False
    live_only: bool = False
    filled: bool = False

    @property
    def is_number(self) -> bool:
        """Whether its value is a number, which listings align to the right."""
        return self.form in ("whole", "number", "seconds")


def row(form: Form, words: str = "", help: str = "", **more: Any) -> Any:
    """Declare a field of a tenant with its row; see `Row` for what `more` may say."""
    default = more.pop("default", UNSAID.get(form))
    said = Row(form=form, words=words, help=help, default=default, **more)
    return dataclasses.field(default=default, metadata={"row": said})


_ROWS: dict[type, dict[str, Row]] = {}


def rows_of(kind: type) -> dict[str, Row]:
    """The rows of a kind of tenant, by name and in order."""
    found = _ROWS.get(kind)
    if found is None:
        found = _ROWS[kind] = {
            each.name: dataclasses.replace(
                said, name=each.name, key=said.key or each.name, label=said.label or said.names
            )
            for each in dataclasses.fields(kind)
            if (said := each.metadata.get("row")) is not None
        }
    return found
