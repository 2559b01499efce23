"""The node policy that an agent's settings name, made from the table of parts.

It is the one place where an agent knows of policies, and it loads them only when it is asked: an
agent without a node policy needs neither them nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from dlsched.core.node_policy import NodePolicy


def make_policy(settings: Mapping[str, object], where: str) -> NodePolicy[Any, Any]:
    """Make a node policy from an agent's settings: its `name`, and its options.

    Raises:
        BadInput: no such policy or option, or a value that does not fit.
    """
    from dlsched.policies.registry import make  # noqa: PLC0415  # few agents need it, and numpy

    options = {key: value for key, value in settings.items() if key != "name"}
    try:
        policy: NodePolicy[Any, Any] = make("node", str(settings.get("name", "")), options)
    except BadInput as error:
        raise BadInput(f"{where}: node_policy: {error}") from None
    return policy
