"""Deleting checkpoints of ended jobs, as the jobs' user: the agent's part."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

from dlsched.core.errors import DlschedError
from dlsched.nodeagent.agent.user_files import UserFiles

DELETE_S = 100.0


async def delete_checkpoints(
    files: UserFiles, paths: Sequence[str], *, uid: int, gid: int, groups: Sequence[int]
) -> list[str]:
    """Delete some folders of a user; return those that are not there any more.

    Raises:
        DlschedError: the file system does not answer, or the user's process was ended.
    """
    try:
        content, order = await files.ask(
            "delete checkpoints", uid=uid, gid=gid, groups=groups, paths=list(paths)
        )
        try:
            found = await asyncio.wait_for(content.read(), DELETE_S)
        finally:
            order.close()
    except TimeoutError:
        raise DlschedError("checkpoints are not deleted in time") from None
    except ConnectionError:
        found = b""
    if not found.startswith(b"[") or not found.endswith(b"\n"):
        why = found.decode("utf-8", "replace").strip() or "the process that does it was ended"
        raise DlschedError(f"checkpoints are not deleted: {why}")
    return [str(path) for path in json.loads(found)]
