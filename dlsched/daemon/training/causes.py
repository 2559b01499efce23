"""Why a run has failed: what its ranks have said, and what the ends of their outputs tell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import replace

import grpc

from dlsched.daemon.cluster import Cluster
from dlsched.daemon.launching import has_file_of_each_rank, is_labelled, output_request, ranks_of
from dlsched.daemon.reported.error_texts import Weight
from dlsched.daemon.reported.failures import Failure, first_cause
from dlsched.daemon.reported.output_errors import Output, OutputError
from dlsched.db.records import Event
from dlsched.protocol.ledger import Job, Run, how_it_ended, was_repeated_in_place
from dlsched.protocol.messages import ExitReason, LaunchMode, NodeName, RunId
from dlsched.rpc.v1.node_pb2 import OutputRequest
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon")
CALL_S = 5.0
TAIL_LINES = 5000
MOST_BYTES = 1024 * 1024  # of an output
MOST_OUTPUTS = 32
_ENDED_BY_OTHERS = ("signal 15", "exit 143")
_KILLED = ("signal 9", "exit 137")


class FailedRun:
    """One run that has failed, and what its ranks have said: at least one thing."""

    def __init__(self, cluster: Cluster, job: Job, run: Run, told: Iterable[Failure]) -> None:
        """Note all that is known of it now: its job may be forgotten soon."""
        self._cluster, self._job, self._run = cluster, job, run
        self._ranks = ranks_of(job, run)
        self._is_ranked = job.request.mode is LaunchMode.GPU
        spec = cluster.driver.table.spec(job)
        self._is_labelled = is_labelled(job, run, spec)
        self._has_own_files = has_file_of_each_rank(job, spec)
        self._node_of = {rank: node for node, ranks in self._ranks.items() for rank in ranks}
        self._told = [self._without_memory(each) for each in told]
        self._outputs = self._all_outputs()

    async def explain(self) -> Event:
        """The event that tells the cause."""
        cause = first_cause(self._told)
        if cause.is_bare or cause.weight is not Weight.CAUSE:
            cause = await self._from_outputs()
        if not self._is_ranked and cause in self._told:
            cause = replace(cause, rank=None)
        if cause.error in _KILLED:
            cause = replace(cause, error=f"{cause.error}: killed, often because memory is short")
        return Event(
            at=wall(),
            kind="cause",
            actor=f"node {cause.node}",
            job=self._run.key.job,
            run_id=RunId(self._run.key.run_id),
            node=NodeName(cause.node),
            text=self._in_words(cause),
        )

    def _without_memory(self, failure: Failure) -> Failure:
        """The failure with what the kernel has told of a rank that it has killed."""
        member = self._run.members.get(NodeName(failure.node))
        record = None if member is None else member.exit
        if record is None or record.reason is not ExitReason.OUT_OF_MEMORY:
            return failure
        if failure.error not in _KILLED:
            return failure
        error = f"{failure.error}: out of memory, killed by the kernel"
        return replace(failure, error=error, known_weight=Weight.CAUSE)

    # -- outputs -----------------------------------------------------------------------------------

    async def _from_outputs(self) -> Failure:
        """The cause, by what ranks have said and what their outputs tell."""
        found: list[Failure] = []
        explained: set[tuple[str, int | None]] = set()
        last_words: dict[tuple[str, int | None], str] = {}
        for (node, first), requests in self._outputs.items():
            text = await self._tail(node, requests)
            output, errors = await asyncio.to_thread(_read, text)  # may take a second of CPU
            failures = [self._failure(each, node, first) for each in errors]
            found += failures[:1]
            for each in failures:
                explained.add((each.node, each.rank if self._is_ranked else None))
            for number in self._ranks.get(NodeName(node), ()):
                label = number if self._is_labelled else None
                last_words[node, number] = output.last_words(label)
        left = [
            each
            for each in self._told
            if not each.is_bare
            or (each.node, each.rank if self._is_ranked else None) not in explained
        ]
        cause = first_cause([*left, *found])
        words = last_words.get((cause.node, cause.rank or 0), "")
        if cause in left and cause.is_bare and words:
            rank = cause.rank if self._is_ranked else None
            return replace(cause, error=f"{cause.error}: {words}", rank=rank)
        return cause

    def _all_outputs(self) -> dict[tuple[str, int], list[OutputRequest]]:
        """What is to be read, by node and first rank, that of ranks that have failed first."""
        table = self._cluster.driver.table
        streams = (False, True) if table.field(self._job, "error") else (False,)
        told = [(each.node, each.rank or 0) for each in sorted(self._told, key=lambda x: x.order)]
        found: dict[tuple[str, int], list[OutputRequest]] = {}
        for node, rank in (*told, *((node, rank) for rank, node in self._node_of.items())):
            ranks = self._ranks.get(NodeName(node), range(0))
            if not ranks or len(found) == MOST_OUTPUTS:
                continue
            first = rank if self._has_own_files and rank in ranks else ranks[0]
            if (node, first) not in found:
                found[node, first] = [self._request(node, first, error) for error in streams]
        return found

    def _request(self, node: str, rank: int, error: bool) -> OutputRequest:
        asked = output_request(
            self._cluster, self._job, self._run, NodeName(node), rank=rank, error=error
        )
        asked.tail_lines = TAIL_LINES
        return asked

    def _failure(self, said: OutputError, node: str, rank: int) -> Failure:
        """The failure of a rank that an output of a node tells."""
        named = said.label if self._is_ranked and said.label is not None else said.rank
        if named is None and self._is_ranked and self._has_own_files:
            named = rank
        where = self._node(said, named) or node
        mine = [
            each
            for each in self._told
            if each.node == where and (not self._is_ranked or each.rank == named)
        ]
        words = next((each for each in mine if not each.is_bare), None)
        if words is not None and words.weight is said.weight:  # it names the line too
            return words
        code = next((each for each in mine if each.is_bare), None)
        error = str(said)
        if code is not None and not said.is_code and code.error not in _ENDED_BY_OTHERS:
            error = f"{code.error}: {error}"
        failure = Failure(
            rank=named,
            node=where,
            error=error,
            at=min((each.at for each in mine), default=wall()),
            known_weight=said.weight,
        )
        return self._without_memory(failure)

    def _node(self, said: OutputError, named: int | None) -> str:
        """The node of a rank that an output names; empty: not known."""
        if self._is_ranked:
            return self._node_of.get(named, "") if named is not None else ""
        if said.label is not None and said.label in self._node_of and self._is_labelled:
            return self._node_of[said.label]
        host = said.node.partition(".")[0]
        return next((x for x in self._run.members if x in (said.node, host)), "")

    async def _tail(self, node: str, requests: Iterable[OutputRequest]) -> str:
        """The last lines of a rank's output; empty when they cannot be read."""
        stub = self._cluster.agents.stub(NodeName(node))
        if stub is None:
            return ""
        found = b""
        for asked in requests:
            try:
                async for chunk in stub.Output(asked, timeout=CALL_S):
                    found = (found + chunk.data)[-MOST_BYTES:]
            except grpc.aio.AioRpcError as error:
                log.info("event=output-not-read run=%s why=%r", self._run.key, error.details())
        return found.decode("utf-8", "replace")

    def _in_words(self, cause: Failure) -> str:
        """The cause, and that the run was repeated in place, if it was."""
        run = self._run
        member = run.members.get(NodeName(cause.node))
        if member is None or member.exit is None or not was_repeated_in_place(run, self._job):
            return str(cause)
        end = how_it_ended(member.exit)
        rank = "" if cause.rank is None else f" (rank {cause.rank})"
        error = cause.error.removeprefix(end).removeprefix(": ")
        line = f"restarted in place after {end} on {cause.node}{rank}"
        return f"{line}: {error}" if error else line


def _read(text: str) -> tuple[Output, list[OutputError]]:
    """What the end of an output tells, and its errors, the cause first."""
    output = Output(text)
    return output, output.errors()
