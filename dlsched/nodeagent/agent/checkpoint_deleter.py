"""Deletes checkpoints; what the file server does, in a process of the jobs' user.

It deletes nothing that is not a checkpoint of the job library.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

from dlsched.job.saving.checkpoint_folder import CheckpointFolder
from dlsched.nodeagent.host.user_rights import open_path


def answer(asked: socket.socket, request: dict[str, Any], *, over: bool) -> None:
    """Delete the checkpoints of a request, and send one line: those that are not there any more."""
    del over  # it has no meaning here
    gone = [path for path in request["paths"] if os.path.isabs(path) and _is_gone(path)]
    asked.sendall(json.dumps(gone).encode() + b"\n")


def _is_gone(path: str) -> bool:
    """Delete one; return False also when it may be there."""
    try:
        os.close(open_path(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW))
        CheckpointFolder.delete(path)
        os.lstat(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False
