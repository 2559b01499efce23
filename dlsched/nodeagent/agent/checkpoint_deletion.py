"""Deleting checkpoints of ended jobs, as the jobs' user.

A child process becomes the user and deletes; a mount that hangs, or a link into another home, then
harms only the child. It deletes nothing that is not a checkpoint of the job library.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import sys
from collections.abc import Sequence

from dlsched.core.errors import DlschedError
from dlsched.job.saving.checkpoint_folder import CheckpointFolder

DELETE_S = 100.0
_PROGRAM = f"from {__name__} import delete_from_input; delete_from_input()"


async def delete_checkpoints(account: pwd.struct_passwd, paths: Sequence[str]) -> list[str]:
    """Delete some folders; return those that are not there any more.

    Raises:
        DlschedError: the file system does not answer.
    """
    is_root = os.geteuid() == 0
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        user=account.pw_uid if is_root else None,
        group=account.pw_gid if is_root else None,
        extra_groups=os.getgrouplist(account.pw_name, account.pw_gid) if is_root else None,
    )
    try:
        asked = json.dumps(list(paths)).encode()
        out, _ = await asyncio.wait_for(child.communicate(asked), DELETE_S)
    except TimeoutError:
        raise DlschedError("checkpoints are not deleted in time") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
    return [str(path) for path in json.loads(out or b"[]")]


def delete_from_input() -> None:
    """Read paths as JSON, delete these checkpoints, and print those that are gone."""
    gone = []
    for path in json.load(sys.stdin):
        if os.path.isabs(path) and not os.path.islink(path):
            CheckpointFolder.delete(path)
            try:
                os.lstat(path)
            except FileNotFoundError:
                gone.append(path)
            except OSError:  # it may be there
                continue
    json.dump(gone, sys.stdout)
