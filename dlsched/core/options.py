"""Options of parts: frozen dataclasses whose fields carry their own documentation.

An option is declared with `option(default, "what it means", ...)` and given as KEY=VALUE text; its
type is the field's annotation: bool, int, float, str, a Literal of words, a tuple of numbers or
words (comma-separated), or one of these or None (the word `none`).
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from dlsched.core.errors import BadInput

T = TypeVar("T")
NETWORK: Final = "network"  # `from_file` of an option whose value is a trained network


@dataclass(frozen=True, slots=True)
class NoOptions:
    """A part that has nothing to choose."""


def option(
    default: T,
    doc: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    ascending: bool = False,
    from_file: bool | Literal["network"] = False,
) -> T:
    """Declare an option.

    Args:
        default: its default.
        doc: what it means, in a few words with the unit.
        low: least value allowed.
        high: greatest value allowed.
        ascending: none of its values is below the one before.
        from_file: its value may be the name of a file of numbers, or is the name of one with a
            trained network; the world reads it (a policy reads no files).
    """
    bounds = {"low": low, "high": high, "ascending": ascending}
    metadata = {"doc": doc, "from_file": from_file, **bounds}
    made: T = field(default=default, metadata=metadata)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionDoc:
    """One option as `dlsched policy show` prints it."""

    name: str
    kind: str
    default: str
    doc: str


def _hints(options_type: type[Any]) -> dict[str, Any]:
    return get_type_hints(options_type)


def describe(options_type: type[Any]) -> list[OptionDoc]:
    """The options of a part, in declared order."""
    return [
        OptionDoc(
            name=f.name,
            kind=_kind_of(f, _hints(options_type)),
            default=show_value(f.default),
            doc=str(f.metadata.get("doc", "")),
        )
        for f in fields(options_type)
    ]


def show_value(value: object) -> str:
    """A value as one would type it after the equals sign."""
    if isinstance(value, tuple):
        if len(value) > 20:
            return f"{len(value)} values"
        return ",".join(show_value(item) for item in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return "none" if value is None else str(value)


def _kind_of(known: Field[Any], hints: Mapping[str, Any]) -> str:
    if known.metadata.get("from_file") == NETWORK:
        return "file of a network|none"
    return _kind(hints[known.name])


def _kind(hint: Any) -> str:
    if hint in (bool, int, float, str):
        return {bool: "true|false", int: "whole number", float: "number", str: "text"}[hint]
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal:
        return "|".join(map(str, args))
    if origin is tuple:
        return f"{_kind(args[0])}, comma-separated"
    if origin in (Union, types.UnionType):
        return "|".join("none" if a is type(None) else _kind(a) for a in args)
    return str(hint)


def parse_options(
    options_type: type[T], given: Mapping[str, object], *, owner: str, also: Iterable[str] = ()
) -> T:
    """Build options from KEY=VALUE texts (or values that are already of the right type).

    Args:
        options_type: the dataclass.
        given: values by option name.
        owner: the part's name, for messages.
        also: further names to mention as known (for options of the run).

    Raises:
        BadInput: an unknown key, or a value that is not of the option's kind or range.
    """
    known = {f.name: f for f in fields(options_type)}  # type: ignore[arg-type]  # T is a dataclass
    hints = _hints(options_type)
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            names = ", ".join([*known, *also]) or "none"
            raise BadInput(f"option {key!r} is not known to {owner}; its options: {names}")
        metadata = known[key].metadata
        if metadata.get("from_file") and not isinstance(value, str):
            values[key] = value  # the world has read and checked the file
            continue
        if metadata.get("from_file") == NETWORK:
            if value != "none":
                raise BadInput(f"option {owner}.{key}: no file is read here; leave {value!r} out")
            values[key] = None
            continue
        parsed = _parse(hints[key], value, f"option {owner}.{key}")
        low, high = metadata.get("low", -math.inf), metadata.get("high", math.inf)
        for number in parsed if isinstance(parsed, tuple) else (parsed,):
            if isinstance(number, int | float) and not low <= number <= high:
                raise BadInput(
                    f"option {owner}.{key} must be {_range(low, high)}, not {show_value(number)}"
                )
        if metadata.get("ascending") and list(parsed) != sorted(parsed):
            raise BadInput(f"option {owner}.{key} must be ascending, not {show_value(parsed)}")
        values[key] = parsed
    return options_type(**values)


def accepts(options_type: type[Any], key: str, value: object) -> bool:
    """Has the part an option of this name that may have this value?"""
    try:
        parse_options(options_type, {key: value}, owner="")
    except BadInput:
        return False
    return True


def _range(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {show_value(float(low))}"
    if low == -math.inf:
        return f"at most {show_value(float(high))}"
    return f"from {show_value(float(low))} to {show_value(float(high))}"


_TRUE, _FALSE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}


def _parse(hint: Any, value: object, where: str) -> Any:  # noqa: PLR0911 - one return a kind
    origin, args = get_origin(hint), get_args(hint)
    text = value.strip() if isinstance(value, str) else show_value(value)
    if origin in (Union, types.UnionType):
        if type(None) in args and text.lower() == "none":
            return None
        return _parse(next(a for a in args if a is not type(None)), value, where)
    if origin is tuple:
        items = [item for item in text.split(",") if item.strip()]
        return tuple(_parse(args[0], item, where) for item in items)
    if origin is Literal:
        for allowed in args:
            if str(allowed) == text:
                return allowed
        raise BadInput(f"{where} must be one of {', '.join(map(str, args))}, not {text!r}")
    if hint is bool:
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
        raise BadInput(f"{where} must be true or false, not {text!r}")
    if hint in (int, float):
        try:
            if "_" in text:
                raise ValueError("Python reads 1_000, a user does not mean it")
            number = hint(text)
        except ValueError:
            raise BadInput(f"{where} must be a {_kind(hint)}, not {text!r}") from None
        if isinstance(number, float) and math.isnan(number):
            raise BadInput(f"{where} must be a number, not {text!r}")
        return number
    return text


def named_numbers(
    option: str, texts: Sequence[str], *, may_be_zero: bool = False
) -> dict[str, float]:
    """Texts of the form NAME:NUMBER as a mapping; `option` names them in messages.

    Raises:
        BadInput: a text has another form, or its number is not finite and above 0.
    """
    found = {}
    for text in texts:
        name, colon, number = text.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError:
            colon = ""
        if not colon or not name:
            raise BadInput(f"{option}: {text!r} is not of the form NAME:NUMBER")
        if not (0 < found[name] < math.inf or (may_be_zero and found[name] == 0)):
            least = "0 or more" if may_be_zero else "more than 0"
            raise BadInput(f"{option}: {text!r}: the number must be {least}, and finite")
    return found
