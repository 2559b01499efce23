"""Virtual clusters that are parts of others: the checks on all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dlsched.core.errors import BadInput, plural


class Part(Protocol):
    """A virtual cluster, as the configuration or an operator sets it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def gpus(self) -> int | None:
        """Its quota of GPUs; None without one."""
        ...

    @property
    def guaranteed(self) -> int | None:
        """The GPUs that it is guaranteed; None for as many as `gpus`."""
        ...

    @property
    def parent(self) -> str:
        """The virtual cluster that it is a part of; empty for none."""
        ...


def check_tree(vcs: Mapping[str, Part]) -> None:
    """Check that virtual clusters form a forest and can give what they guarantee.

    Raises:
        BadInput: one line that names the wrong one.
    """
    for vc in vcs.values():
        at, seen = vc, {vc.name}
        while at.parent:
            above = vcs.get(at.parent)
            if above is None:
                raise BadInput(f"vc {at.name}: is a part of {at.parent}, which does not exist")
            for one in (at, above):
                if one.gpus is None:
                    raise BadInput(f"vc {at.name}: {one.name} has no gpus; only quotas have parts")
            if above.name in seen:
                raise BadInput(f"vc {vc.name}: would be a part of itself, through {above.name}")
            seen.add(above.name)
            at = above
    for vc in vcs.values():
        parts = [other for other in vcs.values() if other.parent == vc.name]
        promised = sum(_guaranteed(part) for part in parts)
        if parts and promised > _guaranteed(vc):
            raise BadInput(
                f"vc {vc.name}: its parts are guaranteed {plural(promised, 'GPU')}, "
                f"it has {_guaranteed(vc)}"
            )


def _guaranteed(vc: Part) -> int:
    return (vc.gpus or 0) if vc.guaranteed is None else vc.guaranteed
