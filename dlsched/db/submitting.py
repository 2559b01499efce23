"""New jobs as rows; elements of an array share one body, one environment and one shape.

A script is stored once for each of its users, so that jobs that differ in arguments share it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from sqlalchemy import Connection

from dlsched.core.errors import InvariantBroken
from dlsched.db import schema
from dlsched.db.contents import ContentGiven, ContentSizes, JobContent, environment_text
from dlsched.db.notices import Notify
from dlsched.db.records import ArrayShape, JobBody, JobSpec
from dlsched.db.rows import Values, job_values, request_text, texts
from dlsched.db.statements import add, add_unless_there
from dlsched.db.stored_bytes import ROW_BYTES, count_bytes
from dlsched.db.tenant_rows import note_user
from dlsched.protocol.json_form import dumps, plain
from dlsched.protocol.ledger import Job, Request, Submit
from dlsched.protocol.messages import JobId

NO_SPEC = {
    **dict.fromkeys(("body", "array", "array_job", "array_task", "uid", "spec_user")),
    **dict.fromkeys(("name", "account", "vc", "partition_name", "notify"), ""),
    "array_index": 0,
}


# fields that are made of others, or that have columns or tables of their own
ELSEWHERE = ("program", "seal", "dependencies")
# Fields whose default is to be empty are left out of a row when they are. Every other default is
# written, so that a later one does not change what was stored.
EMPTY = {name: value for name, value in plain(JobBody(name="-")).items() if not value}


class Submission:
    """The rows of one transaction's new jobs."""

    def __init__(self, at: float, given: Iterable[ContentGiven]) -> None:
        self.at = at
        self._contents = {each.job: each.content for each in given}
        self.jobs: set[JobId] = set()
        self.bodies: dict[JobId, int] = {}
        self.notify: dict[JobId, Notify] = {}  # of jobs whose user wants to be told
        self._same_body: dict[int, int] = {}  # id() of a body -> its key
        self._same_shape: dict[int, int] = {}
        self._kept: list[object] = []  # keeps every id() unique
        self._rows: dict[str, list[Values]] = {
            name: []
            for name in (
                *("job_bodies", "programs", "job_environments", "dependencies", "arrays", "jobs"),
            )
        }
        self._scripts: dict[tuple[str, str], bytes] = {}  # by user and digest
        self._digest_of: dict[int, str] = {}  # id() of a script -> its digest
        self._bytes: Counter[str] = Counter()  # that the database keeps of each user, more
        self._users: dict[str, int] = {}
        self._environment: tuple[object, str] = (None, "")  # the last one, and its text

    def take(self, write: Submit, job: Job) -> None:
        """Add one job; later changes of the same transaction are stored as for any other job."""
        if write.job in self.jobs:
            raise InvariantBroken(f"job {write.job} is submitted twice")
        self.jobs.add(write.job)
        self._bytes[write.request.user] += ROW_BYTES
        self._rows["jobs"].append(self._job_row(write.job, write.request))

    def _job_row(self, number: JobId, request: Request) -> Values:
        spec = request.spec
        if spec is not None and not isinstance(spec, JobSpec):
            raise InvariantBroken(f"job {number}: {type(spec).__name__} is no JobSpec")
        row: Values = {
            "job": number,
            **job_values(Job(job=number, request=request)),
            "user_name": request.user,
            "request_id": request.request_id,
            "request": request_text(request),
            "gpus": sum(request.gang),
            "live": True,
            "held": "",
            "submitted_at": self.at,
            "starts": 0,
            "migrations": 0,
            "resizes": 0,
            "cancelled_by": "",
            **NO_SPEC,
        }
        if spec is not None:
            row |= self._spec(number, spec)
        return row

    def _spec(self, number: JobId, spec: JobSpec) -> Values:
        body, array = spec.body, spec.array
        key = self.bodies[number] = self._body(number, spec.user, body)
        self._users[spec.user] = spec.uid
        if body.notify:
            first = JobId(number - spec.index) if array is not None else None
            self.notify[number] = Notify(body.notify, first)
        return {
            "body": key,
            "array": self._shape(number, array) if array is not None else None,
            "array_index": spec.index,
            "array_job": number - spec.index if array is not None else None,
            "array_task": spec.task,
            "uid": spec.uid,
            "spec_user": spec.user,
            "submitted_at": spec.submitted_at,
            "name": spec.name,
            "account": body.account,
            "vc": body.vc,
            "partition_name": body.partition,
            "notify": body.notify,
        }

    def _body(self, number: JobId, user: str, body: JobBody) -> int:
        known = self._same_body.get(id(body))
        if known is not None:
            return known
        self._same_body[id(body)] = number
        self._kept.append(body)
        content = self._contents.get(number, JobContent())
        public = {
            name: value
            for name, value in plain(body).items()
            if name not in ELSEWHERE and not (name in EMPTY and value == EMPTY[name])
        }
        asked, argv = json.dumps(public, separators=(",", ":")), texts(content.argv)
        self._bytes[user] += len(asked) + len(argv)
        row = {
            "body": number,
            "content": asked,
            "seal": body.seal,
            "program": body.program,
            "program_bytes": ContentSizes().of_content(replace(content, environment={})),
        }
        self._rows["job_bodies"].append(row)
        program = {
            "body": number,
            "user_name": user,
            "argv": argv,
            "script": self._script(user, content.script) if content.script else None,
        }
        self._rows["programs"].append(program)
        if content.environment:
            text = self._text_of(content)
            self._rows["job_environments"].append({"body": number, "variables": text})
        self._rows["dependencies"] += [
            {
                "body": number,
                "position": position,
                "kind": dependency.kind,
                "on_job": dependency.job,
                "delay_s": dependency.delay_s,
                "or_next": dependency.or_next,
            }
            for position, dependency in enumerate(body.dependencies)
        ]
        return number

    def _script(self, user: str, script: bytes) -> str:
        """The digest of a script, which is stored with the rows."""
        if id(script) not in self._digest_of:
            self._digest_of[id(script)] = hashlib.sha256(script).hexdigest()
            self._kept.append(script)
        digest = self._digest_of[id(script)]
        self._scripts[user, digest] = script
        return digest

    def _text_of(self, content: JobContent) -> str:
        """The environment as text, made once where jobs share it."""
        kept, text = self._environment
        if kept is not content.environment:
            text = environment_text(content.environment)
            self._environment = (content.environment, text)
        return text

    def _shape(self, number: JobId, array: ArrayShape) -> int:
        known = self._same_shape.get(id(array))
        if known is not None:
            return known
        self._same_shape[id(array)] = number
        self._kept.append(array)
        self._rows["arrays"].append({"array": number, "shape": dumps(array)})
        return number

    def store(self, connection: Connection) -> None:
        """Insert the rows of the jobs taken so far: those of 10,000 at once would fill 40 MB."""
        for (user, digest), script in self._scripts.items():
            row = {"user_name": user, "digest": digest, "content": script}
            if add_unless_there(connection, schema.scripts, row):
                self._bytes[user] += len(script)
        self._scripts.clear()
        for name, rows in self._rows.items():
            add(connection, schema.METADATA.tables[name], rows)
            rows.clear()

    def finish(self, connection: Connection) -> None:
        """Note which users have submitted, and how much is stored of each: once for all jobs."""
        for name, uid in self._users.items():
            note_user(connection, name, uid, self.at)
        count_bytes(connection, self._bytes)
