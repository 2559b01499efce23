"""What jobs execute: scripts, commands and environments, which stay in the database.

They may be long, so the ledger has none of them. A body says with two digests what its content is:
enough to know a repeated request again, and to know trainings that are started in the same way.
A content becomes durable as a row of the transaction that submits its job, and is read again when
a run is launched.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from posixpath import basename, isabs, splitext
from typing import Any

from sqlalchemy import Connection, and_, select

from dlsched.db import schema
from dlsched.db.records import JobBody, JobSpec
from dlsched.db.rows import of_row, strings
from dlsched.db.statements import rows_in
from dlsched.protocol.json_form import loads
from dlsched.protocol.ledger import Request
from dlsched.protocol.messages import JobId

SOURCES = frozenset({".py", ".sh", ".bash", ".pl", ".R", ".jl", ".lua"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContent:
    """What a job executes, the same for every element of an array."""

    argv: tuple[str, ...] = ()  # the command; with a script, its arguments
    script: bytes = b""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # secret


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentGiven:
    """The content of jobs that the same transaction submits with one body: `job` is the first."""

    job: JobId
    content: JobContent = field(repr=False)


# -- digests ---------------------------------------------------------------------------------------


def program_of(content: JobContent, working_directory: str) -> str:
    """Which script or command it is, with all arguments: a word, "#" and a digest; empty for none.

    A command with a relative path is another one in another folder. Equal texts are one object.
    """
    if content.script:
        arguments = "".join(f"\0{word}" for word in content.argv)
        return sys.intern(f"script#{_digest(content.script + _bytes(arguments))}")
    argv = content.argv
    if not argv:
        return ""
    ends = [k for k, word in enumerate(argv) if splitext(word)[1] in SOURCES]
    source = argv[ends[0] if ends else 0]
    where = "" if isabs(source) else working_directory
    said = _bytes("\0".join((where, *argv)))
    return sys.intern(f"{basename(source.rstrip('/'))}#{_digest(said)}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def environment_text(variables: Mapping[str, str]) -> str:
    """An environment as the database has it."""
    return json.dumps(dict(variables), sort_keys=True, separators=(",", ":"))


def seal_of(variables: Mapping[str, str], salt: bytes) -> str:
    """A salted digest, to compare an environment after it has been deleted."""
    digest = hashlib.blake2b(environment_text(variables).encode(), key=salt, digest_size=16)
    return f"{salt.hex()}:{digest.hexdigest()}"


class Repeats:
    """Compares the requests of a repeated call with the known ones, whose seals differ."""

    def __init__(self) -> None:
        self._last: tuple[JobBody, JobBody] | None = None  # compared, which elements share
        self._same = False

    def is_same(self, known: Request, other: Request, content: JobContent) -> bool:
        """Whether a request has the content of a known one; its time does not matter.

        Args:
            known: the accepted one.
            other: the repeated one.
            content: that comes with it.
        """
        mine, its = known.spec, other.spec
        if not isinstance(mine, JobSpec) or not isinstance(its, JobSpec):
            return known == other
        if self._last is None or self._last[0] is not mine.body or self._last[1] is not its.body:
            salt = bytes.fromhex(mine.body.seal.partition(":")[0])
            seal = seal_of(content.environment, salt)
            self._last = mine.body, its.body
            self._same = mine.body == replace(its.body, seal=seal)
        again = replace(its, submitted_at=mine.submitted_at, body=mine.body)
        return self._same and known == replace(other, spec=again)


# -- sizes -----------------------------------------------------------------------------------------

# bytes that Python takes for one of each, beside its text
_WORD, _EXTRA, _DEPENDENCY, _NODE = 80, 200, 500, 16
_QUOTES = 6  # characters of a variable's row beside its name and value


class ContentSizes:
    """About how many bytes what jobs ask for takes: what may be long in bodies and contents.

    An environment that several contents share is looked at once, and counts for each of them: it
    stays until the last of them goes.
    """

    def __init__(self) -> None:
        self._environments: dict[int, tuple[Mapping[str, str], int]] = {}  # by id, which it keeps

    def of(self, body: JobBody, content: JobContent) -> int:
        """The size of one body with its content."""
        words = (*body.gpu_types, *body.only_nodes, *body.not_nodes)
        return (
            self.of_content(content)
            + _size_of(words)
            + _EXTRA * len(body.extra)
            + _DEPENDENCY * len(body.dependencies)
            + _NODE * len(body.gang or ())
        )

    def of_content(self, content: JobContent) -> int:
        """The size of what a job executes."""
        return (
            len(content.script) + _size_of(content.argv) + self.of_environment(content.environment)
        )

    def of_environment(self, variables: Mapping[str, str]) -> int:
        """The size of an environment's text."""
        known = self._environments.get(id(variables))
        if known is None:
            size = sum(map(len, (*variables, *variables.values()))) + _QUOTES * len(variables)
            known = self._environments[id(variables)] = variables, size
        return known[1]


def _size_of(words: Sequence[str]) -> int:
    return sum(map(len, words)) + _WORD * len(words)


# -- reading ---------------------------------------------------------------------------------------


def read_contents(connection: Connection, jobs: Iterable[int]) -> dict[JobId, JobContent]:
    """The contents of jobs that have one; elements of an array share it.

    An environment is empty once it has been deleted.
    """
    table, secrets = schema.jobs, schema.job_environments
    programs, scripts = schema.programs, schema.scripts
    of_job = {
        row["job"]: row["body"]
        for row in rows_in(connection, select(table.c.job, table.c.body), table.c.job, set(jobs))
        if row["body"] is not None
    }
    its = and_(scripts.c.user_name == programs.c.user_name, scripts.c.digest == programs.c.script)
    query = (
        select(programs, scripts.c.content, secrets.c.variables)
        .join_from(programs, scripts, its, isouter=True)
        .join(secrets, secrets.c.body == programs.c.body, isouter=True)
    )
    found: dict[int, JobContent] = {}
    environments: dict[str, Any] = {}
    for row in rows_in(connection, query, programs.c.body, set(of_job.values())):
        key, text = row["body"], row["variables"]
        with of_row("programs", key):
            if row["content"] is None and row["script"] is not None:
                raise ValueError("its script is not there")
            script = row["content"] or b""
            found[key] = JobContent(argv=strings(row["argv"]), script=script)
        if text is not None:
            with of_row("job_environments", key):
                if text not in environments:  # jobs that have the same one share it
                    environments[text] = loads(_VARIABLES, text)
            found[key] = replace(found[key], environment=environments[text])
    return {JobId(job): found[body] for job, body in of_job.items()}


_VARIABLES: Any = Mapping[str, str]
