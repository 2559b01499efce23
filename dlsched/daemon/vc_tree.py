"""Virtual clusters that are parts of others: what must hold of all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from dlsched.core.errors import BadInput

__all__ = ["check_tree"]


class Part(Protocol):
    """A virtual cluster, as the file or an operator says it."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def gpus(self) -> int | None:
        """Its quota, where it is one."""
        ...

    @property
    def guaranteed(self) -> int | None:
        """As many as `gpus` when not said."""
        ...

    @property
    def parent(self) -> str:
        """The one that it is a part of."""
        ...


def check_tree(vcs: Mapping[str, Part]) -> None:
    """Virtual clusters that are parts of others are a forest, and can keep what they guarantee.

    Raises:
        BadInput: naming the one that is wrong.
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
                f"vc {vc.name}: its parts are guaranteed {promised} GPUs, it has {_guaranteed(vc)}"
            )


def _guaranteed(vc: Part) -> int:
    return (vc.gpus or 0) if vc.guaranteed is None else vc.guaranteed
