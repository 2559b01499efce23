"""The runs of this node outside the agent: their keepers, their files, their leftovers.

An agent starts keepers, finds those of its predecessor, passes orders to them and takes their
messages. When a keeper is lost, it kills what the keeper left and writes down how the run ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeVar

from dlsched.core.errors import DlschedError, NotAllowed
from dlsched.nodeagent.agent import accounts
from dlsched.nodeagent.agent.keepers import cleanup
from dlsched.nodeagent.agent.keepers.ended_runs import EndedRuns
from dlsched.nodeagent.agent.keepers.link import KeeperLink
from dlsched.nodeagent.agent.keepers.spawning import CannotStartKeeper
from dlsched.nodeagent.agent.keepers.standstill import StandstillWatch
from dlsched.nodeagent.agent.keepers.start import KeeperStart
from dlsched.nodeagent.agent.leader_link import LeaderLink, NotLaunched
from dlsched.nodeagent.agent.settings import Settings
from dlsched.nodeagent.agent.tasks import AgentTasks
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.host import cgroups, processes, systemd_units
from dlsched.nodeagent.json_values import value_of
from dlsched.nodeagent.keeper.run_files import FoundRun, RunFolder
from dlsched.nodeagent.ranks.hook_environment import hook_environment
from dlsched.nodeagent.ranks.launch_spec import RunFacts
from dlsched.protocol import agent
from dlsched.protocol import messages as m
from dlsched.system import clock
from dlsched.system.fault_points import fault_point
from dlsched.system.site_commands import run_command

log = logging.getLogger(__name__)
T = TypeVar("T")
Message = dict[str, Any]
_KEEPER_ANSWERS_S = 3.0
_AGAIN_S = 0.05
_UNIT_ENDS_S = 1.0
_ACCOUNT_S = 10.0


@dataclass(eq=False, slots=True)
class Keepers:
    """The keepers of one node."""

    settings: Settings
    tasks: AgentTasks
    starter: KeeperStart
    leader: LeaderLink  # says how a run is launched
    gpus: GpuWatch  # how much memory runs hold, and how much is free
    _: KW_ONLY
    handle: Callable[[agent.Event], None]  # takes the events that follow
    held: Callable[[m.RunId], m.DesiredRun | None]  # a run that the agent holds
    # takes a keeper's messages that are about the job, not about its run
    forward: Callable[[m.RunId, Message], None]
    facts: dict[m.RunId, RunFacts] = field(default_factory=dict, init=False)
    _folders: dict[m.RunId, RunFolder] = field(default_factory=dict, init=False)
    _links: dict[m.RunId, KeeperLink] = field(default_factory=dict, init=False)
    _orders_before_start: dict[m.RunId, list[m.Order]] = field(default_factory=dict, init=False)
    _to_delete: list[tuple[RunFolder, m.ExitRecord]] = field(default_factory=list, init=False)
    _ended: EndedRuns = field(init=False)
    # why keepers could not keep their runs
    _failures: dict[m.RunId, str] = field(default_factory=dict, init=False)
    # as keepers report them
    _suspensions: dict[m.RunId, Mapping[str, Any]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Name the file of how runs have ended here."""
        self._ended = EndedRuns(self.settings.run_dir)

    # -- the start of the agent ----------------------------------------------------------------

    async def find(self) -> tuple[list[agent.RunRecord], list[m.KeeperStatus]]:
        """Read the runs on disk and connect to their keepers.

        Returns:
            All runs on disk, and the status of each keeper that is alive.

        Raises:
            BadInput: when a record cannot be read; nothing is guessed.
        """
        runs, statuses = [], []
        boot = clock.boot_id()
        self._ended.read()
        await self._have_files_written_again()
        for found in cleanup.remaining_runs(self.settings.state_dir, self.settings.run_dir):
            run_id = found.file.desired.key.run_id
            self.facts[run_id] = found.file.facts
            self._folders[run_id] = self._folder(found.file.desired)
            runs.append(_record(self._without_epilog(found)))
            process = found.file.keeper.open() if found.file.boot_id == boot else None
            if process is not None:
                statuses.append(await self._adopt(found, process))
        await self._kill_strays()
        known = {each.cgroup for each in self.facts.values()}
        await self.tasks.on_disk(cgroups.sweep, self.starter.cgroup_root, known)
        return runs, statuses

    def _without_epilog(self, found: FoundRun) -> FoundRun:
        """A run on disk; without its end while its epilog has not ended, which is reported first.

        Its keeper runs the epilog, or this agent when the keeper is lost.
        """
        return replace(found, exit=None) if self._is_epilog_due(found) else found

    def _is_epilog_due(self, found: FoundRun) -> bool:
        hooks = self.settings.hooks
        return bool(hooks.epilog) and found.exit is not None and not found.epilog_ended

    async def _run_epilog(self, folder: RunFolder) -> FoundRun | None:
        """Run the epilog that a lost keeper's run still needs; return what the disk has then."""
        found = await self.tasks.on_disk(folder.read)
        if found is None or not self._is_epilog_due(found):
            return found
        hooks, desired = self.settings.hooks, found.file.desired
        node = m.NodeName(self.settings.name)
        environment = hook_environment("epilog", node, desired, found.file.facts, found.exit)
        fault_point("agent-epilog-before")
        failed = await run_command(hooks.epilog, hooks.epilog_limit_s, environment=environment)
        log.info("hook-ended name=epilog run=%s keeper=lost failed=%r", desired.key, failed)
        failed = f"epilog {failed}" if failed else ""
        await self.tasks.on_disk(folder.end_epilog, failed)
        fault_point("agent-epilog-after")
        return await self.tasks.on_disk(folder.read)

    async def _have_files_written_again(self) -> None:
        """Have each live keeper write what was deleted under it; waits until all are on disk."""
        state_dir, run_dir = self.settings.state_dir, self.settings.run_dir
        logged = False
        since = clock.boottime()
        while True:
            found = await self.tasks.in_thread(cleanup.wake_keepers, run_dir)
            missing = cleanup.without_records(found, state_dir)
            if not missing:
                return
            if not logged and clock.boottime() - since > _KEEPER_ANSWERS_S:
                logged = True  # it may not join while a run is alive that it does not know
                pid, path = missing[0]
                log.error("cannot-join why=keeper %d of %s does not write its run again", pid, path)
            await asyncio.sleep(_AGAIN_S)

    async def _kill_strays(self) -> None:
        """Kill the processes of runs that have neither a keeper nor a record any more."""
        arguments = (self.settings.run_dir, set(self.facts))
        while strays := await self.tasks.in_thread(cleanup.kill_strays, *arguments):
            log.warning("strays-killed pids=%s", ",".join(str(each.pid) for each in strays))
            await asyncio.sleep(_AGAIN_S)

    async def _adopt(self, found: FoundRun, process: int) -> m.KeeperStatus:
        """Connect to a keeper; return its status, or the likely one when it does not answer."""
        desired = found.file.desired
        run_id = desired.key.run_id
        first: asyncio.Future[m.KeeperStatus] = asyncio.get_running_loop().create_future()

        def on_message(run_id: m.RunId, message: Message) -> None:
            if "status" in message and not first.done():
                first.set_result(value_of(m.KeeperStatus, message["status"]))
                self._note_suspension(run_id, message)
            else:
                self._on_message(run_id, message)

        self._link(run_id, found.file.keeper.pid, process, on_message).begin()
        try:
            return await asyncio.wait_for(first, _KEEPER_ANSWERS_S)
        except TimeoutError:
            log.warning("keeper-silent run=%s", desired.key)
            phase = m.Phase.RUNNING if found.released_at is not None else m.Phase.PREPARED
            return m.KeeperStatus(desired=desired, phase=phase)

    def _folder(self, desired: m.DesiredRun) -> RunFolder:
        return RunFolder(self.settings.state_dir, self.settings.run_dir, desired.key)

    def _link(
        self,
        run_id: m.RunId,
        pid: int,
        process: int,
        on_message: Callable[[m.RunId, Message], None],
    ) -> KeeperLink:
        path = self._folders[run_id].agent_socket
        link = KeeperLink(run_id, pid, process, path, on_message=on_message, on_end=self._on_end)
        self._links[run_id] = link
        return link

    def process_of(self, run_id: m.RunId) -> int | None:
        """Return a descriptor of the process of a run's keeper, which its link closes; or None."""
        link = self._links.get(run_id)
        return link.process if link is not None else None

    # -- starting a keeper ---------------------------------------------------------------------

    def start(self, desired: m.DesiredRun, covered_until: float | None) -> None:
        """Start the keeper of a run; when it cannot be started, a `KeeperGone` follows."""
        self._orders_before_start[desired.key.run_id] = []
        self.tasks.start(self._start(desired, covered_until))

    async def _start(self, desired: m.DesiredRun, covered_until: float | None) -> None:
        run_id = desired.key.run_id
        try:
            folder = self._folder(desired)
            if run_id in self._ended:
                self._tell_again(desired, await self.tasks.on_disk(self._ended.find, run_id))
                return
            message = await self._unless_stopped(run_id, self.leader.launch(desired.key))
            launch = await asyncio.wait_for(
                self.tasks.in_thread(accounts.launch_facts, self.settings, message), _ACCOUNT_S
            )
            # a keeper that is lost in its start may have recorded the run
            self._folders[run_id] = folder
            started, facts = await self.starter.start(desired, launch, covered_until)
        except (DlschedError, OSError, TimeoutError) as error:
            why = str(error) or "the user's account cannot be looked up"
            if isinstance(error, CannotStartKeeper | OSError):
                why = f"{m.NodeName(self.settings.name)}: {why}"
            self._orders_before_start.pop(run_id, None)
            log.warning("not-started run=%s why=%s", desired.key, why)
            self.handle(agent.KeeperGone(clock.boottime(), run_id, why, _fault_of(error)))
            return
        self.facts[run_id] = facts
        link = self._link(run_id, started.pid, started.process_fd, self._on_message)
        link.begin(started.connection)
        for order in self._orders_before_start.pop(run_id, []):
            self.order(run_id, order)

    def _tell_again(self, desired: m.DesiredRun, end: m.ExitRecord) -> None:
        """Report how a run ended that the daemon had acknowledged and knows no more."""
        self._orders_before_start.pop(desired.key.run_id, None)
        log.warning("ended-before run=%s", desired.key)
        status = m.KeeperStatus(desired=desired, phase=m.Phase.STOPPING, exit=end)
        self.handle(agent.KeeperReported(clock.boottime(), status))

    async def _unless_stopped(self, run_id: m.RunId, fetching: Coroutine[Any, Any, T]) -> T:
        """Return what is fetched.

        Raises:
            NotLaunched: as soon as the run is ordered to stop.
        """
        task = asyncio.ensure_future(fetching)
        done: set[asyncio.Task[T]] = set()
        while not done:
            done, _ = await asyncio.wait({task}, timeout=0.2)
            orders = self._orders_before_start.get(run_id, [])
            if any(isinstance(order, m.Stop | m.Kill) for order in orders):
                task.cancel()
                raise NotLaunched("stopped before it was started")
        return task.result()

    # -- to a keeper ---------------------------------------------------------------------------

    def order(self, run_id: m.RunId, order: m.Order) -> None:
        """Pass an order to a run's keeper, or keep it until the keeper is started."""
        link = self._links.get(run_id)
        if link is None:
            if run_id in self._orders_before_start:
                self._orders_before_start[run_id].append(order)
            return
        if isinstance(order, m.Thaw) and not self._may_resume(run_id):
            return  # the leader repeats the order
        if isinstance(order, m.Freeze):
            link.order(order, gpu_bytes=self.gpus.used_by(run_id))
            return
        link.order(order)

    def _may_resume(self, run_id: m.RunId) -> bool:
        """Whether the GPUs have room for the memory that a CUDA checkpoint has moved away."""
        suspension = self._suspensions.get(run_id, {})
        if suspension.get("level") != "cuda":
            return True
        desired = self.held(run_id)
        gpus = desired.gpus if desired is not None else ()
        if self.gpus.has_room(gpus, int(suspension.get("bytes", 0))):
            return True
        log.warning("cannot-resume run=%s why=not enough free GPU memory", run_id)
        return False

    def send(self, run_id: m.RunId, message: Message) -> bool:
        """Send a keeper a message that is no order; return False when there is no keeper."""
        link = self._links.get(run_id)
        if link is not None:
            link.send(message)
        return link is not None

    def kill(self, run_id: m.RunId) -> None:
        """Kill a keeper; what it leaves is killed when its end is noticed."""
        link = self._links.get(run_id)
        if link is not None:
            link.kill()

    def has(self, run_id: m.RunId) -> bool:
        """Whether a run has a live keeper here."""
        return run_id in self._links

    def shells_socket(self, run_id: m.RunId) -> str:
        """Return the path at which a run's keeper takes clients of shells; empty: no keeper."""
        return self._folders[run_id].shells_socket if run_id in self._links else ""

    def runs_of(self, pids: Iterable[int]) -> dict[int, m.RunId | None]:
        """Return the run of each process; None for a process of no run."""
        keepers = {run_id: link.pid for run_id, link in self._links.items()}
        cgroup_of = {run_id: facts.cgroup for run_id, facts in self.facts.items() if facts.cgroup}
        return processes.runs_of(pids, keepers, cgroup_of)

    # -- from a keeper -------------------------------------------------------------------------

    def _on_message(self, run_id: m.RunId, message: Message) -> None:
        if "status" in message:
            status = value_of(m.KeeperStatus, message["status"])
            self._note_suspension(run_id, message)
            self.handle(agent.KeeperReported(clock.boottime(), status))
        elif "failed" in message:
            desired = self.held(run_id)
            self._failures[run_id] = str(message["failed"])
            key = desired.key if desired is not None else None
            log.warning("not-kept run=%s why=%s", key, message["failed"])
        elif "hook" in message:
            told = message["hook"]
            level = logging.ERROR if told["failed"] else logging.INFO
            log.log(
                level, "hook-ended name=%s run=%s failed=%r said=%r s=%.2f",
                told["name"], run_id, told["failed"], told["said"], told["s"],
            )  # fmt: skip
        elif "unclear" in message:
            log.error("not-understood run=%s why=%s", run_id, message["unclear"])
        else:
            self.forward(run_id, message)

    def _note_suspension(self, run_id: m.RunId, message: Message) -> None:
        suspension = message.get("suspended")
        if not isinstance(suspension, dict):
            self._suspensions.pop(run_id, None)
            return
        if suspension.get("why") and self._suspensions.get(run_id) != suspension:
            level, why = suspension.get("level"), suspension["why"]
            log.warning("suspended-otherwise run=%s level=%s why=%s", run_id, level, why)
        self._suspensions[run_id] = suspension

    def _on_end(self, run_id: m.RunId) -> None:
        self._links.pop(run_id, None)
        why = self._failures.get(run_id, "")
        self.handle(agent.KeeperGone(clock.boottime(), run_id, why))

    # -- after a keeper ------------------------------------------------------------------------

    async def write_end(self, record: m.ExitRecord) -> None:
        """Write the exit record of a lost keeper's run, again and again while the disk is full."""
        folder = self._folders.get(record.key.run_id)
        if folder is None:
            return
        if not record.detail:
            record = replace(record, detail=systemd_units.recorded_end(folder.records))
        while True:
            try:
                await self.tasks.on_disk(_write_end, folder, record)
                break
            except OSError as error:
                log.error("cannot-store why=%s", error.strerror)
                await asyncio.sleep(1.0)
        found = await self._run_epilog(folder)
        written = found.exit if found is not None and found.exit is not None else record
        self.handle(agent.EndWritten(clock.boottime(), written))

    async def forget(self, run_id: m.RunId, end: m.ExitRecord) -> None:
        """Delete what a run that is over has on this node, but for how it ended."""
        folder = self._folders.pop(run_id, None)
        facts = self.facts.pop(run_id, None)
        self._failures.pop(run_id, None)
        self._suspensions.pop(run_id, None)
        if folder is not None:
            self._to_delete.append((folder, end))
            await asyncio.sleep(0)  # until all that one reply lets it forget are in the list
            doomed, self._to_delete = self._to_delete, []
            if doomed:
                await self.tasks.on_disk(self._delete, doomed)
        await self._remove_cgroup(facts.cgroup if facts is not None else "")

    def _delete(self, doomed: list[tuple[RunFolder, m.ExitRecord]]) -> None:
        try:
            self._ended.add({end.key.run_id: end for _, end in doomed})
        except OSError as error:
            log.error("cannot-store-ends why=%s", error.strerror)
        cleanup.delete_runs(folder for folder, _ in doomed)

    async def _remove_cgroup(self, path: str) -> None:
        await cleanup.remove_cgroup(path, self.tasks.on_disk)

    async def kill_leftovers(self, run_id: m.RunId) -> None:
        """Kill a lost keeper's processes until none is left, then report what the disk has."""
        folder = self._folders.get(run_id)
        found = await self.tasks.on_disk(folder.read) if folder is not None else None
        if folder is not None and found is not None and found.file.boot_id == clock.boot_id():
            since = clock.boottime()
            if found.exit is None and found.file.facts.unit:
                await self._wait_for_unit(folder)
            while left := await self.tasks.in_thread(
                cleanup.kill_leftovers, found, m.NodeName(self.settings.name)
            ):
                if clock.boottime() - since > self.settings.timing.unkillable_s:
                    pids = ", ".join(str(each.pid) for each in left)
                    self.gpus.node_problem(run_id, f"unkillable process {pids}")
                await asyncio.sleep(_AGAIN_S)
            self.gpus.node_problem(run_id, "")
            await self._remove_cgroup(found.file.facts.cgroup)  # before its end is reported
        if folder is not None and found is not None:
            found = await self._run_epilog(folder)
        if found is None:
            self._folders.pop(run_id, None)
        record = _record(found) if found is not None else None
        self.handle(agent.LeftoversGone(clock.boottime(), run_id, record, clock.wall()))

    async def _wait_for_unit(self, folder: RunFolder) -> None:
        """Give systemd a moment to end the unit and to record how its keeper ended."""
        until = clock.boottime() + _UNIT_ENDS_S
        while clock.boottime() < until and not systemd_units.recorded_end(folder.records):
            await asyncio.sleep(_AGAIN_S)

    async def watch_standstill(self) -> None:
        """Look for keepers that stand still, for ever."""

        def cgroup_of(run_id: m.RunId) -> str:
            facts = self.facts.get(run_id)
            return facts.cgroup if facts is not None else ""

        watch = StandstillWatch(self._links, cgroup_of, self._is_job_over, self.gpus.node_problem)
        await watch.run()

    async def _is_job_over(self, run_id: m.RunId) -> bool:
        """Whether a run has begun, has no end on disk, and no process but its keeper."""
        folder, link = self._folders.get(run_id), self._links.get(run_id)
        found = await self.tasks.on_disk(folder.read) if folder is not None else None
        if found is None or link is None or found.released_at is None or found.exit is not None:
            return False
        node = m.NodeName(self.settings.name)
        left = await self.tasks.in_thread(cleanup.leftovers, found, node)
        return all(each.pid == link.pid for each in left)

    def close(self) -> None:
        """Close the connections to keepers; the keepers go on."""
        for link in list(self._links.values()):
            link.close()
        self.starter.close()


def _fault_of(error: Exception) -> m.StartFault | None:
    """Whose fault it is that a keeper was not started; None: the run is not to start any more."""
    if isinstance(error, NotLaunched):
        return None
    return m.StartFault.JOB_HERE if isinstance(error, NotAllowed) else m.StartFault.NODE


def _record(found: FoundRun) -> agent.RunRecord:
    return agent.RunRecord(
        desired=found.file.desired,
        boot_id=found.file.boot_id,
        released=found.released_at is not None,
        exit=found.exit,
        released_at=found.released_at,
    )


def _write_end(folder: RunFolder, record: m.ExitRecord) -> None:
    """Write the end of a lost keeper's run into the file that the keeper had reserved."""
    fault_point("agent-end-before")
    if os.path.isdir(folder.records):
        folder.end(record)
    fault_point("agent-end-after")
