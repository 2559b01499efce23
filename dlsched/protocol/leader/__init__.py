"""The leader as a pure step: its events, state and commands."""

from __future__ import annotations

from dlsched.protocol.leader.interface import *  # noqa: F403 - the parts of one interface
from dlsched.protocol.leader.placing import *  # noqa: F403
from dlsched.protocol.leader.requests import *  # noqa: F403
from dlsched.protocol.leader.state import *  # noqa: F403
from dlsched.protocol.leader.step import *  # noqa: F403
