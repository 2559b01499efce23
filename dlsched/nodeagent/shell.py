"""The agent's process: carries out what `dlsched.protocol.agent` commands.

One event at a time goes through the pure step; everything that takes time is a task that ends in
another event. Files are written by one thread, in the order of the commands. The agent may be
killed anywhere: what it knows is on disk or in keepers, and `begin` reads both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from dlsched.core.errors import BadInput, DlschedError
from dlsched.nodeagent import accounts, clock, dropping, leftovers, runfiles, units
from dlsched.nodeagent.births import Births
from dlsched.nodeagent.faultpoint import faultpoint
from dlsched.nodeagent.gang_ranks import GangRanks
from dlsched.nodeagent.gpus.watch import GpuWatch
from dlsched.nodeagent.keeper_link import KeeperLink
from dlsched.nodeagent.leader_link import LeaderLink, NotLaunched
from dlsched.nodeagent.owners import owners
from dlsched.nodeagent.peers import Peers
from dlsched.nodeagent.plainjson import value_of
from dlsched.nodeagent.progress import Progress
from dlsched.nodeagent.settings import Settings
from dlsched.nodeagent.zygote_link import CannotSpawn
from dlsched.protocol import agent
from dlsched.protocol.messages import (
    DesiredRun,
    ExitRecord,
    Forget,
    Freeze,
    Inventory,
    KeeperStatus,
    Kill,
    NodeName,
    Order,
    Phase,
    Reply,
    RunId,
    RunKey,
    Signal,
    Stop,
    Thaw,
    WitnessAnswer,
    WitnessQuery,
)

log = logging.getLogger(__name__)
_KEEPER_ANSWERS_S = 3.0
_LEFTOVERS_S = 0.05
_CGROUP_TRIES = 100
_UNIT_TELLS_S = 1.0


class AgentShell:
    """One node's agent."""

    def __init__(
        self,
        settings: Settings,
        *,
        births: Births,
        gpus: GpuWatch,
        inventory: Inventory,
        trust: Any,
    ) -> None:
        self.settings, self._births, self.gpus = settings, births, gpus
        self.state = agent.AgentState(
            node=NodeName(settings.name), inventory=inventory, timing=settings.timing
        )
        self.leader = LeaderLink(
            self.state.node,
            settings.daemon,
            trust,
            settings.timing,
            replied=self._replied,
            ready=lambda: self.handle(agent.Tick(clock.now())),
        )
        self.progress = Progress(self.state.node, self.leader, self.tell_keeper)
        self.peers = Peers(settings)
        self.facts: dict[RunId, runfiles.Facts] = {}
        self.suspended: dict[RunId, Mapping[str, Any]] = {}  # what keepers say of their suspension
        self.ranks = GangRanks(self)
        self._links: dict[RunId, KeeperLink] = {}
        self._folders: dict[RunId, runfiles.RunFolder] = {}
        self._orders: dict[RunId, list[Order]] = {}  # of runs whose keepers are not born yet
        self._why: dict[RunId, str] = {}
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="disk")
        self._work = ThreadPoolExecutor(4, thread_name_prefix="work")
        self._events: deque[agent.Event] = deque()
        self._stepping = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed = asyncio.Event()  # something to describe

    # -- events --------------------------------------------------------------------------------

    def handle(self, event: agent.Event) -> None:
        """One step, in turn."""
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                self.state, commands = agent.step(self.state, self._events.popleft())
                for command in commands:
                    self._do(command)
        except Exception as error:
            log.exception("step-failed")
            if not self.failed.done():
                self.failed.set_exception(error)
        finally:
            self._stepping = False

    def task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run beside; a failure ends the agent, loudly."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self.failed.done():
            self.failed.set_exception(task.exception())  # type: ignore[arg-type]  # not None

    async def in_thread(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Do something that may wait."""
        return await asyncio.get_running_loop().run_in_executor(self._work, call, *arguments)

    async def _on_disk(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._disk, call, *arguments)

    # -- start ---------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Read the disk, find the keepers, go on from there.

        Raises:
            BadInput: when a record cannot be read; nothing is guessed.
        """
        settings = self.settings
        known = runfiles.read_agent(settings.state_dir)
        if known is not None and known.node != self.state.node:
            raise BadInput(
                f"{settings.state_dir} belongs to node {known.node}, this is {self.state.node}"
            )
        record = agent.AgentRecord()
        if known is not None:
            record = agent.AgentRecord(
                term=known.term,
                incarnation=known.incarnation,  # type: ignore[arg-type]  # NewType
            )
        runs, keepers = [], []
        boot = clock.boot_id()
        for found in dropping.sweep(settings.state_dir, settings.run_dir):
            run_id = found.file.desired.key.run_id
            self.facts[run_id] = found.file.facts
            self._folders[run_id] = self._folder(found.file.desired)
            runs.append(
                agent.RunRecord(
                    desired=found.file.desired,
                    boot_id=found.file.boot_id,
                    released=found.released,
                    exit=found.exit,
                )
            )
            handle = found.file.keeper.open() if found.file.boot_id == boot else None
            if handle is not None:
                keepers.append(await self._adopt(found, handle))
        known_cgroups = {each.cgroup for each in self.facts.values()}
        await self._on_disk(leftovers.sweep_cgroups, self._births.cgroup_root, known_cgroups)
        lease = runfiles.read_lease(settings.run_dir)
        log.info("agent-started node=%s runs=%d keepers=%d", settings.name, len(runs), len(keepers))
        self.handle(
            agent.Started(
                now=clock.now(),
                boot_id=boot,
                record=record,
                runs=tuple(runs),
                keepers=tuple(keepers),
                lease_until=lease.until if lease is not None else None,
            )
        )
        self.task(self.leader.run())
        self.task(self._beat())

    async def _adopt(self, found: runfiles.FoundRun, handle: int) -> KeeperStatus:
        """Attach to a keeper; one that does not answer is alive all the same."""
        desired = found.file.desired
        run_id = desired.key.run_id
        first: asyncio.Future[KeeperStatus] = asyncio.get_running_loop().create_future()

        def heard(run_id: RunId, message: dict[str, Any]) -> None:
            if "status" in message and not first.done():
                first.set_result(value_of(KeeperStatus, message["status"]))
                self._note_suspension(run_id, message)
            else:
                self._keeper_said(run_id, message)

        link = KeeperLink(
            run_id,
            found.file.keeper.pid,
            handle,
            self._folders[run_id].agent_socket,
            heard=heard,
            gone=self._keeper_gone,
        )
        self._links[run_id] = link
        link.begin()
        try:
            return await asyncio.wait_for(first, _KEEPER_ANSWERS_S)
        except TimeoutError:
            log.warning("keeper-silent run=%s", desired.key)
            phase = Phase.RUNNING if found.released else Phase.PREPARED
            return KeeperStatus(desired=desired, phase=phase)

    def _folder(self, desired: DesiredRun) -> runfiles.RunFolder:
        return runfiles.RunFolder(self.settings.state_dir, self.settings.run_dir, desired.key)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.settings.timing.beat_s * random.uniform(0.9, 1.0))
            self.handle(agent.Tick(clock.now()))

    def _replied(self, reply: Reply) -> None:
        self.handle(agent.ReplyArrived(clock.now(), reply))

    # -- commands ------------------------------------------------------------------------------

    def _do(self, command: agent.Command) -> None:  # one case a command
        match command:
            case agent.SendSync(sync=sync):
                self.leader.send(sync)
            case agent.Persist(record=record):
                self.task(self._persist(record))
            case agent.WriteEnd(exit=record):
                self.task(self._write_end(record))
            case agent.DropRecord(run_id=run_id):
                self.task(self._drop(run_id))
            case agent.Spawn(desired=desired, covered_until=until):
                self._orders[desired.key.run_id] = []
                self.task(self._spawn(desired, until))
            case agent.Tell(run_id=run_id, order=order):
                self._tell(run_id, order)
            case agent.KillLeftovers(run_id=run_id):
                self.task(self._kill_leftovers(run_id))
            case agent.WriteLease(until=until, covers=covers, by_leader=by_leader):
                lease = runfiles.LeaseFile(until=until, covers=covers, by_leader=by_leader)
                self.task(self._on_disk(self._write_lease, lease))
            case agent.Ask(query=query):
                self.task(self._ask(query))
            case agent.AnswerWitness():
                pass  # answered where it was asked: see `witness`
            case agent.Note(text=text):
                log.warning("%s", text)

    async def _persist(self, record: agent.AgentRecord) -> None:
        file = runfiles.AgentFile(
            node=self.state.node, term=record.term, incarnation=record.incarnation
        )
        while True:
            try:
                await self._on_disk(runfiles.write_agent, self.settings.state_dir, file)
                break
            except OSError as error:  # full: jobs go on, nothing new is used or started
                log.error("cannot-store why=%s", error.strerror)
                self.gpus.node_problem("disk", f"cannot store: {error.strerror}")
                await asyncio.sleep(1.0)
        self.gpus.node_problem("disk", "")
        self.handle(agent.Persisted(clock.now(), record))

    def _write_lease(self, lease: runfiles.LeaseFile) -> None:
        try:
            runfiles.write_lease(self.settings.run_dir, lease)
        except OSError as error:  # keepers then see an older lease: on the safe side
            log.error("cannot-store-lease why=%s", error.strerror)

    async def _write_end(self, record: ExitRecord) -> None:
        folder = self._folders.get(record.key.run_id)
        if folder is None:
            return
        if not record.detail:
            record = replace(record, detail=units.told_end(folder.records))
        while True:
            try:
                await self._on_disk(_end, folder, record)
                break
            except OSError as error:
                log.error("cannot-store why=%s", error.strerror)
                await asyncio.sleep(1.0)
        found = await self._on_disk(folder.found)
        self.handle(agent.EndWritten(clock.now(), found.exit if found else record))

    async def _drop(self, run_id: RunId) -> None:
        folder = self._folders.pop(run_id, None)
        facts = self.facts.pop(run_id, None)
        self._why.pop(run_id, None)
        self.suspended.pop(run_id, None)
        if folder is not None:
            await self._on_disk(dropping.drop, folder)
        await self._remove_cgroup(facts.cgroup if facts is not None else "")

    async def _remove_cgroup(self, path: str) -> None:
        """Remove a run's cgroup; one that cannot be removed is swept at the next start."""
        for _ in range(_CGROUP_TRIES):
            if await self._on_disk(leftovers.remove_cgroup, path):
                break
            await asyncio.sleep(_LEFTOVERS_S)  # its keeper is on its way out

    async def _ask(self, query: WitnessQuery) -> None:
        answer = await self.peers.ask(query)
        if answer is not None:
            self.handle(agent.WitnessAnswered(clock.now(), answer))

    def witness(self, query: WitnessQuery) -> WitnessAnswer:
        """Answer another agent."""
        _, commands = agent.step(self.state, agent.WitnessAsked(clock.now(), query))
        return next(c.answer for c in commands if isinstance(c, agent.AnswerWitness))

    # -- keepers -------------------------------------------------------------------------------

    async def _spawn(self, desired: DesiredRun, until: float | None) -> None:
        """Fetch how to launch, then make a keeper; what goes wrong ends in `KeeperGone`."""
        run_id = desired.key.run_id
        try:
            folder = self._folder(desired)
            fetched = self.leader.launch(desired.key)
            launch = await self._unless_stopped(run_id, fetched)
            facts = await asyncio.wait_for(
                self.in_thread(accounts.launch_facts, self.settings, launch), 10
            )
            born, facts_ = await self._births.make(desired, facts, until)
        except (NotLaunched, DlschedError, OSError, TimeoutError) as error:
            why = str(error) or "the user's account cannot be looked up"
            if isinstance(error, CannotSpawn | OSError):
                why = f"{self.state.node}: {why}"
            self._orders.pop(run_id, None)
            log.warning("not-started run=%s why=%s", desired.key, why)
            self.handle(agent.KeeperGone(clock.now(), run_id, why))
            return
        self.facts[run_id], self._folders[run_id] = facts_, folder
        link = KeeperLink(
            run_id,
            born.pid,
            born.handle,
            folder.agent_socket,
            heard=self._keeper_said,
            gone=self._keeper_gone,
        )
        self._links[run_id] = link
        link.begin(born.connection)
        for order in self._orders.pop(run_id, []):
            self._tell(run_id, order)

    async def _unless_stopped(self, run_id: RunId, fetching: Coroutine[Any, Any, Any]) -> Any:
        """What is fetched, or NotLaunched as soon as the run is asked to stop."""
        task = asyncio.ensure_future(fetching)
        while True:
            done, _ = await asyncio.wait({task}, timeout=0.2)
            if done:
                break
            if any(isinstance(order, Stop | Kill) for order in self._orders.get(run_id, [])):
                task.cancel()
                raise NotLaunched("stopped before it was started")
        if any(isinstance(order, Stop | Kill) for order in self._orders.get(run_id, [])):
            raise NotLaunched("stopped before it was started")
        return task.result()

    def _tell(self, run_id: RunId, order: Order) -> None:
        link = self._links.get(run_id)
        if link is None:
            if run_id in self._orders:
                self._orders[run_id].append(order)
            return
        if isinstance(order, Thaw) and not self._may_resume(run_id):
            return  # asked again at the next reply
        if isinstance(order, Freeze):
            link.order(order, gpu_bytes=self.gpus.used_by(run_id))
            return
        link.order(order)
        if isinstance(order, Forget):
            log.debug("forget run=%s", run_id)

    def _may_resume(self, run_id: RunId) -> bool:
        """Whether the GPUs have room for what a checkpoint has put aside."""
        said = self.suspended.get(run_id, {})
        if said.get("level") != "cuda":
            return True
        held = self.state.held.get(run_id)
        gpus = held.desired.gpus if held is not None else ()
        if self.gpus.has_room(gpus, int(said.get("bytes", 0))):
            return True
        log.warning("cannot-resume run=%s why=not enough free GPU memory", run_id)
        return False

    def signal(self, run_id: RunId, order: Signal) -> None:
        """One signal to one run."""
        self._tell(run_id, order)

    def node_rank(self, run_id: RunId) -> int:
        """This node's place in a run."""
        held = self.state.held.get(run_id)
        if held is not None:
            for place, share in enumerate(held.desired.layout):
                if share.node == self.state.node:
                    return place
        return 0

    def owners(self, pids: Iterable[int]) -> dict[int, RunId | None]:
        """Whose processes these are."""
        keepers = {run_id: link.pid for run_id, link in self._links.items()}
        cgroups = {run_id: facts.cgroup for run_id, facts in self.facts.items() if facts.cgroup}
        return owners(pids, keepers, cgroups)

    def tell_keeper(self, run_id: RunId, message: dict[str, Any]) -> bool:
        """Say something that is no order; False when there is no keeper."""
        link = self._links.get(run_id)
        if link is not None:
            link.tell(message)
        return link is not None

    def _keeper_said(self, run_id: RunId, message: dict[str, Any]) -> None:
        if "status" in message:
            try:
                status = value_of(KeeperStatus, message["status"])
            except BadInput as error:
                log.error("keeper-unclear run=%s why=%s", run_id, error)
                return
            self._note_suspension(run_id, message)
            self.handle(agent.KeeperSpoke(clock.now(), status))
        elif "failed" in message:
            self._why[run_id] = str(message["failed"])
            log.warning("not-kept run=%s why=%s", self.key(run_id), message["failed"])
        elif "report" in message:
            self.progress.report(self.key(run_id), message["report"])
        elif "checkpoint" in message:
            self.task(self._commit(run_id, message["checkpoint"]))
        else:
            self.ranks.keeper_said(run_id, message)

    def has_keeper(self, run_id: RunId) -> bool:
        """Whether a run has a live keeper here."""
        return run_id in self._links

    def key(self, run_id: RunId) -> RunKey | None:
        """The run's whole name."""
        held = self.state.held.get(run_id)
        return held.desired.key if held is not None else None

    async def _commit(self, run_id: RunId, made: dict[str, Any]) -> None:
        key = self.key(run_id)
        if key is None:
            return
        answer = await self.progress.commit(key, made)
        told = {"path": made["path"], "accepted": answer.accepted, "why": answer.why}
        self.tell_keeper(run_id, {"committed": told})

    def _note_suspension(self, run_id: RunId, message: dict[str, Any]) -> None:
        said = message.get("suspended")
        if isinstance(said, dict):
            if said.get("why") and self.suspended.get(run_id) != said:
                log.warning(
                    "suspended-otherwise run=%s level=%s why=%s",
                    run_id,
                    said.get("level"),
                    said["why"],
                )
            self.suspended[run_id] = said
        else:
            self.suspended.pop(run_id, None)

    def _keeper_gone(self, run_id: RunId) -> None:
        self._links.pop(run_id, None)
        self.handle(agent.KeeperGone(clock.now(), run_id, self._why.get(run_id, "")))

    async def _kill_leftovers(self, run_id: RunId) -> None:
        """Kill what is left, until nothing is; then say what the disk says."""
        folder = self._folders.get(run_id)
        found = await self._on_disk(folder.found) if folder is not None else None
        if found is not None and found.file.boot_id == clock.boot_id():
            since = clock.now()
            if found.exit is None and folder is not None and found.file.facts.unit:
                await self._unit_tells(folder)
            while left := await self.in_thread(leftovers.kill, found, self.state.node):
                if clock.now() - since > self.settings.timing.unkillable_s:
                    pids = ", ".join(str(each.pid) for each in left)
                    self.gpus.node_problem(run_id, f"unkillable process {pids}")
                await asyncio.sleep(_LEFTOVERS_S)
            self.gpus.node_problem(run_id, "")
            await self._remove_cgroup(found.file.facts.cgroup)  # before its end is told
            found = await self._on_disk(folder.found) if folder is not None else None
        if found is None:
            self._folders.pop(run_id, None)
        record = None
        if found is not None:
            record = agent.RunRecord(
                desired=found.file.desired,
                boot_id=found.file.boot_id,
                released=found.released,
                exit=found.exit,
            )
        self.handle(agent.LeftoversGone(clock.now(), run_id, record))

    async def _unit_tells(self, folder: runfiles.RunFolder) -> None:
        """Give systemd a moment to end the unit and to say how its keeper ended."""
        until = clock.now() + _UNIT_TELLS_S
        while clock.now() < until and not units.told_end(folder.records):
            await asyncio.sleep(_LEFTOVERS_S)

    async def close(self) -> None:
        """Let go of everything; keepers stay."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for link in list(self._links.values()):
            link.close()
        await self.leader.close()
        await self.peers.close()
        self._births.close()
        self._disk.shutdown(wait=False)
        self._work.shutdown(wait=False)


def _end(folder: runfiles.RunFolder, record: ExitRecord) -> None:
    """Write the end of a lost keeper's run: into what the keeper had reserved."""
    faultpoint("agent-end-before")
    if os.path.isdir(folder.records):
        folder.end(record)
    faultpoint("agent-end-after")
