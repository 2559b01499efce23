"""Frozen records as `dataclasses` makes them, without code that is generated at every start.

`dataclasses` with what it imports costs a short command more than the start of Python itself, and
each class that it makes a twentieth of that. Classes that short commands load are therefore a
`Record`. The functions of `dataclasses` (`fields`, `replace`, `asdict`) take records too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, dataclass_transform

if TYPE_CHECKING:
    import dataclasses

_NONE = object()


class _Said:
    """What a class says of a field beyond its type and a plain default."""

    __slots__ = ("make", "metadata", "printed", "value")

    def __init__(
        self,
        value: object,
        make: Callable[[], Any] | None,
        metadata: Mapping[str, Any],
        printed: bool,
    ) -> None:
        self.value = value
        self.make = make
        self.metadata = metadata
        self.printed = printed


def field(
    *,
    default: Any = _NONE,
    default_factory: Callable[[], Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    repr: bool = True,  # as `dataclasses.field` has it
) -> Any:
    """Say more of a field, as `dataclasses.field`: its default, metadata, whether it is printed."""
    return _Said(default, default_factory, metadata or {}, repr)


def field_names(kind: type[Record]) -> tuple[str, ...]:
    """The names of a class's fields, in their order."""
    return tuple(kind._types)


class _DataclassFields:
    """`__dataclass_fields__` of a class, made when it is first read."""

    def __get__(self, record: object, kind: Any) -> dict[str, dataclasses.Field[Any]]:
        import dataclasses  # noqa: PLC0415  # costs more than the rest of a command

        rows: list[Any] = []
        for name, annotation in kind._types.items():
            parts: dict[str, Any] = {}
            if hasattr(kind, name):
                parts["default"] = getattr(kind, name)
            said = kind._said.get(name)
            if said is not None:
                parts |= {"metadata": said.metadata, "repr": said.printed}
                if said.make is not None:
                    parts["default_factory"] = said.make
            rows.append((name, annotation, dataclasses.field(**parts)))
        like = dataclasses.make_dataclass(kind.__name__, rows, kw_only=True)
        kind.__dataclass_fields__ = found = dict(vars(like)["__dataclass_fields__"])
        return found


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """A class whose annotations are its fields; they are given by name and do not change.

    A field that is not given has its default value. Records are equal when they are of one class
    and their fields are equal.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    _types: ClassVar[dict[str, Any]] = {}
    _said: ClassVar[dict[str, _Said]] = {}

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        """Note the fields; `kw_only=False` tells type checkers that they may be given by place."""
        super().__init_subclass__()
        cls.__dataclass_fields__ = _DataclassFields()  # type: ignore[assignment]
        cls._types = cls._types | vars(cls).get("__annotations__", {})
        cls._said = dict(cls._said)
        for name, said in list(vars(cls).items()):
            if isinstance(said, _Said):
                cls._said[name] = said
                if said.value is _NONE:
                    delattr(cls, name)
                else:
                    setattr(cls, name, said.value)

    def __init__(self, *values: Any, **given: Any) -> None:
        """Take the values of fields.

        Raises:
            TypeError: a field without a default is not given, or there is no such field.
        """
        given |= zip(self._types, values, strict=False)
        for name, said in self._said.items():
            if said.make is not None and name not in given:
                given[name] = said.make()
        wrong = {name for name in self._types if name not in given and not hasattr(self, name)}
        wrong |= given.keys() - self._types.keys()
        if wrong or len(values) > len(self._types):
            raise TypeError(f"{type(self).__name__}: lacking or not known: {sorted(wrong)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        from dataclasses import FrozenInstanceError  # noqa: PLC0415

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        self.__setattr__(name, None)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return _values(self) == _values(other)

    def __hash__(self) -> int:
        return hash(tuple(_values(self)))

    def __repr__(self) -> str:
        hidden = {name for name, said in self._said.items() if not said.printed}
        shown = (name for name in self._types if name not in hidden)
        parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({parts})"


def _values(record: Record) -> list[Any]:
    return [getattr(record, name) for name in record._types]
