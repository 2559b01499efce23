"""The node agent as a pure step: its events, state and commands."""

from __future__ import annotations

from dlsched.protocol.agent.interface import *  # noqa: F403 - the parts of one interface
from dlsched.protocol.agent.state import *  # noqa: F403
from dlsched.protocol.agent.step import *  # noqa: F403
