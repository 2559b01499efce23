"""How the daemon's file says a tenant or a node: the keys and bounds of its table as a section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, create_model

from dlsched.nodes.fields import ROWS
from dlsched.tenants.field import Form, Row, rows_of
from dlsched.tenants.fields import NAME

HostList = Annotated[str, StringConstraints(to_lower=True)]  # DNS knows no capital letters
TenantName = Annotated[str, Field(min_length=1, max_length=64, pattern=f"^{NAME}$")]
TenantSectionOf = TypeVar("TenantSectionOf", bound="TenantSection")
TYPES: dict[Form, Any] = {
    "text": str,
    "hosts": HostList,
    "names": tuple[str, ...],
    "flag": bool,
    "whole": int,
}


class TenantSection(BaseModel):
    """A tenant in the file; `keys_of` gives it the keys of the tenant's table."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    kind: ClassVar[type[Any]]

    name: TenantName

    @property
    def tenant(self) -> Any:
        """The tenant as it is stored."""
        rows = rows_of(self.kind).items()
        return self.kind(name=self.name, **{name: getattr(self, row.key) for name, row in rows})


Section = TypeVar("Section", bound=BaseModel)


def with_keys(keys: Mapping[str, tuple[object, object]], section: type[Section]) -> type[Section]:
    """A section with more keys, as their types and defaults; what it says itself stays."""
    own: dict[str, Any] = {k: v for k, v in keys.items() if k not in section.model_fields}
    return create_model(
        section.__name__,
        __base__=section,
        __module__=section.__module__,
        __doc__=section.__doc__,
        **own,
    )


def keys_of(
    kind: type[Any],
) -> Callable[[type[TenantSectionOf]], type[TenantSectionOf]]:
    """Give a section the keys of a kind of tenant."""
    keys = {row.key: (_type(row), row.default) for row in rows_of(kind).values()}

    def made(section: type[TenantSectionOf]) -> type[TenantSectionOf]:
        found = with_keys(keys, section)
        found.kind = kind
        return found

    return made


def with_facts(section: type[Section]) -> type[Section]:
    """Give a section the keys of the facts of a node that the file may say."""
    keys: dict[str, tuple[object, object]] = {}
    whole, number = Annotated[int, Field(ge=1)], Annotated[float, Field(gt=0)]
    for name, row in ROWS.items():
        if row.configured:
            kind: object = (whole if row.whole else number) | None
            keys[name] = (str, "") if row.form == "text" else (kind, None)
    return with_keys(keys, section)


def _type(row: Row) -> Any:
    """The type of a key, with its bounds."""
    found = TYPES.get(row.form, float)
    if row.is_number:
        whole = row.form == "whole"
        least, most = (int(row.least), int(row.most)) if whole else (row.least, row.most)
        bounds: dict[str, Any] = {"gt": 0} if row.above_zero else {"ge": least}
        if not whole:
            bounds["allow_inf_nan"] = False
        found = Annotated[found, Field(le=most, **bounds)]
    return found | None if row.default is None else found
