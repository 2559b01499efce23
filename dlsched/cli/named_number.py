"""Options of the form NAME=NUMBER, such as `--link nic=10` and `--memory v100=16`."""

from __future__ import annotations

from dlsched.core.errors import BadInput


def named_number(text: str, form: str) -> tuple[str, float]:
    """Read a name and a number above 0.

    Args:
        text: as it was typed.
        form: the option and what it takes, for the message: `--link must be NAME=RATE with a rate`.

    Raises:
        BadInput: no such pair.
    """
    name, equals, said = text.partition("=")
    try:
        value = float(said)
    except ValueError:
        value = 0.0
    if not (name and equals and 0 < value < float("inf")):
        raise BadInput(f"{form} above 0, not {text!r}")
    return name, value
