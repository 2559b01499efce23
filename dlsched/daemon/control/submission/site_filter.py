"""The site's own function that looks at what is submitted and updated: `[submit] filter`.

It runs in a process of its own, as policies do: it can change what is asked, refuse it with a line,
and add notes; it can neither hold the daemon nor harm it. What it changes is validated like what
users write. Where it fails, nothing is submitted or updated: a rule that is not kept for a while
would be no rule.
"""

from __future__ import annotations

import json
import logging
import os

from google.protobuf.message import Message

from dlsched.core.errors import BadInput, NotAllowed, PolicyFailed
from dlsched.daemon.cluster import Cluster
from dlsched.daemon.round.site_function import Asked, file_of
from dlsched.daemon.round.worker import PolicyWorker
from dlsched.rpc.identity import Identity
from dlsched.rpc.v1 import control_pb2

log = logging.getLogger("dlsched.daemon.control")
NOT_SHOWN = ("environment", "dependencies")  # secrets; ids that only the daemon understands
TASK = "[submit] filter"


class SiteFilter:
    """Asks the site's function, if there is one."""

    def __init__(self, cluster: Cluster) -> None:
        """Start no process yet."""
        self._cluster = cluster
        self._worker: PolicyWorker | None = None
        self._stamp: object = None  # of the function that the process has

    async def submission(
        self, request: control_pb2.SubmitRequest, caller: Identity
    ) -> tuple[control_pb2.SubmitRequest, list[str]]:
        """What is submitted instead, and notes for the user.

        Raises:
            NotAllowed: the site refuses it; or its function fails.
        """
        if not self._cluster.settings.submit.filter:
            return request, []
        changes, notes = await self._ask("submit", caller, [_shown(job) for job in request.jobs])
        changed = control_pb2.SubmitRequest()
        changed.CopyFrom(request)
        for job, fields in zip(changed.jobs, changes, strict=True):
            self._change(job, fields)
        return changed, notes

    async def update(
        self, request: control_pb2.UpdateRequest, caller: Identity
    ) -> tuple[control_pb2.UpdateRequest, list[str]]:
        """What is updated instead, and notes for the user.

        Raises:
            NotAllowed: as for `submission`.
        """
        if not self._cluster.settings.submit.filter:
            return request, []
        [fields], notes = await self._ask("update", caller, [dict(request.fields)])
        changed = control_pb2.UpdateRequest()
        changed.CopyFrom(request)
        for name, value in fields.items():
            if value is None:
                changed.fields.pop(name, None)
            else:
                changed.fields[name] = str(value)
        return changed, notes

    async def close(self) -> None:
        """End the process."""
        if self._worker is not None:
            await self._worker.close()

    async def _ask(
        self, action: str, caller: Identity, asked: list[Asked]
    ) -> tuple[list[Asked], list[str]]:
        chosen = self._cluster.settings.submit
        try:
            worker = await self._ready(chosen.filter, chosen.within_s)
            question = {
                "filter": chosen.filter, "action": action, "user": caller.name, "asked": asked,
            }  # fmt: skip
            told = await worker.ask_site(json.dumps(question).encode(), TASK)
            answers: list[Asked | str] = json.loads(told)
        except (BadInput, PolicyFailed) as error:
            self._cluster.filter_trouble = f"{TASK}: {error}; nothing is submitted or updated"
            log.error("event=site-filter-failed why=%r", str(error))
            raise NotAllowed(f"the site's filter fails: {error}") from None
        self._cluster.filter_trouble = ""
        changes: list[Asked] = []
        for each in answers:
            if isinstance(each, str):
                raise NotAllowed(each)
            changes.append(each)
        notes = [note for each in changes for note in _as_list(each.pop("note", []))]
        return changes, list(dict.fromkeys(notes))

    async def _ready(self, name: str, within_s: float) -> PolicyWorker:
        """The process with the present function; a changed file is read by a new one."""
        file = file_of(name)
        found = os.stat(file) if file and os.path.exists(file) else None
        stamp = (name, found and (found.st_mtime_ns, found.st_ino))
        if self._worker is None or stamp != self._stamp:
            await self.close()
            self._worker, self._stamp = PolicyWorker(), stamp
        self._worker.time_limit_s = within_s
        return self._worker

    def _change(self, job: control_pb2.JobRequest, fields: Asked) -> None:
        for name, value in fields.items():
            try:
                _set(job, name, value)
            except (TypeError, ValueError, AttributeError) as error:
                why = f"{TASK}: it sets {name} to {value!r:.60}: {error}"
                self._cluster.filter_trouble = why
                raise NotAllowed(f"the site's filter fails: {why}") from None


def _as_list(note: object) -> list[str]:
    return [str(each) for each in note] if isinstance(note, list) else [str(note)]


def _shown(job: control_pb2.JobRequest) -> Asked:
    """The fields that a job has, as plain values."""
    found: Asked = {}
    for field, value in job.ListFields():
        if field.name in NOT_SHOWN or isinstance(value, Message):
            continue
        if isinstance(value, bytes):
            found[field.name] = value.decode(errors="replace")
        elif isinstance(value, bool | int | float | str):
            found[field.name] = value
        elif field.message_type is None:
            found[field.name] = list(value)
        elif field.message_type.GetOptions().map_entry:
            found[field.name] = dict(value)
    return found


def _set(job: control_pb2.JobRequest, name: str, value: object) -> None:
    """Set a field; None clears it.

    Raises:
        ValueError: there is no such field, or it is not to be changed.
    """
    field = job.DESCRIPTOR.fields_by_name.get(name)
    if field is None or name in NOT_SHOWN:
        raise ValueError("a job has no such field")
    job.ClearField(name)
    if value is None:
        return
    present = getattr(job, name)
    if isinstance(value, dict):
        present.update(value)
    elif isinstance(value, list):
        present.extend(value)
    else:
        setattr(job, name, str(value).encode() if isinstance(present, bytes) else value)
