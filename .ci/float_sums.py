"""A plugin of mypy: `sum()` of floats is refused, because its result depends on the Python.

From Python 3.12 on it carries rounding errors along, before it does not: a tie falls otherwise, and
a schedule is another one. `dlsched.core.sums.ordered_sum` and `math.fsum` are the same on each.
"""

from __future__ import annotations

from collections.abc import Callable

from mypy.maptype import map_instance_to_supertype
from mypy.plugin import FunctionContext, Plugin
from mypy.types import Instance, TupleType, Type, UnionType, get_proper_type

REFUSED = "sum() of floats depends on the Python: use dlsched.core.sums.ordered_sum"


def _may_be_float(kind: Type) -> bool:
    proper = get_proper_type(kind)
    if isinstance(proper, UnionType):
        return any(map(_may_be_float, proper.items))
    return isinstance(proper, Instance) and proper.type.fullname == "builtins.float"


def _look(context: FunctionContext) -> Type:
    values = get_proper_type(context.arg_types[0][0])
    if isinstance(values, TupleType):
        values = values.partial_fallback
    every = context.api.named_generic_type("typing.Iterable", []).type
    if isinstance(values, Instance) and values.type.has_base(every.fullname):
        items = map_instance_to_supertype(values, every).args
        if any(map(_may_be_float, items)):
            context.api.fail(REFUSED, context.context)
    return context.default_return_type


class FloatSums(Plugin):
    """Looks at each call of `sum`."""

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return what looks at a call of this function."""
        return _look if fullname == "builtins.sum" else None


def plugin(_version: str) -> type[Plugin]:
    """Return the plugin to mypy."""
    return FloatSums
