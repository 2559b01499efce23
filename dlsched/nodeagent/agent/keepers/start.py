"""From a desired run to a live keeper: its spec, its cgroup or systemd unit, its process.

Where systemd starts keepers, `RUN/births` is the socket at which a new unit asks for its job: it
connects and says its name, and gets the spec, its end of the connection to the agent, and the
spawning lock, which it holds until its run is on disk. Only root reaches the socket; no command
line, unit property or file ever holds a user's environment. When the agent has died meanwhile,
nothing answers the unit and it ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import socket
import struct
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import psutil

from dlsched.nodeagent.agent.keepers import spawning
from dlsched.nodeagent.agent.keepers.spawning import CannotStartKeeper
from dlsched.nodeagent.agent.keepers.zygote_link import (
    ZYGOTE,
    NoAnswer,
    StartedKeeper,
    ZygoteLink,
    keeper_environment,
    request_keeper,
)
from dlsched.nodeagent.agent.settings import HookSettings, Settings
from dlsched.nodeagent.gpus.backend import Inventory
from dlsched.nodeagent.host import cgroups, systemd_units
from dlsched.nodeagent.host.launchers import Launcher
from dlsched.nodeagent.keeper import run_files
from dlsched.nodeagent.ranks.containers import find_tool
from dlsched.nodeagent.ranks.launch_spec import KeeperSpec, LaunchFacts, RunFacts
from dlsched.protocol.messages import DesiredRun, NodeName

log = logging.getLogger(__name__)
_START_S = 30.0  # of a call of systemd
_ASKS_S = 30.0  # until a started unit has asked for its job
_DESCRIPTORS = 16  # that a start may need, with those of threads beside it
_NAME_BYTES = 200
_SOCKET = "births"


class KeeperStart:
    """Starts the keepers of one node."""

    def __init__(
        self, settings: Settings, zygote: ZygoteLink, launcher: Launcher, gpus: Inventory
    ) -> None:
        """Prepare to start keepers.

        Args:
            settings: of the agent.
            zygote: forks keepers where systemd does not start them.
            launcher: how far this node can confine a job.
            gpus: of this node.
        """
        self._settings, self._zygote, self._launcher = settings, zygote, launcher
        self._units: UnitStart | None = None
        if launcher.name == "systemd":
            self._units = UnitStart(settings.run_dir)
        self._index_of = {gpu.uuid: gpu.index for gpu in gpus.gpus}
        self._minor_of = {gpu.uuid: gpu.minor for gpu in gpus.gpus}
        self._tool = settings.checkpoint_tool or shutil.which("cuda-checkpoint") or ""
        self._container_tool = find_tool(settings.container_tool)
        self._py_spy = shutil.which("py-spy") or ""

    def apart(self, state_dir: str, run_dir: str) -> KeeperStart:
        """One that starts keepers of runs without hooks, whose files are in other folders."""
        other = copy(self)
        other._settings = replace(
            self._settings, state_dir=state_dir, run_dir=run_dir, hooks=HookSettings()
        )
        return other

    async def start(
        self, desired: DesiredRun, launch: LaunchFacts, covered_until: float | None
    ) -> tuple[StartedKeeper, RunFacts]:
        """Start the keeper of a run.

        `covered_until` is the end of the node lease that covers it, in seconds since the boot; None
        when it needs no lease.

        Returns:
            The keeper, and what the agent needs of the run after its own restart.

        Raises:
            CannotStartKeeper: when there is no keeper.
            OSError: when the run's cgroup cannot be made.
        """
        _check_descriptors()
        launcher, settings = self._launcher, self._settings
        cgroup = ""
        if launcher.makes_cgroups:
            folder = run_files.folder_name(desired.key)
            cgroup = await asyncio.to_thread(launcher.make_cgroup, folder, desired)
        facts = RunFacts(
            user=launch.user,
            uid=launch.uid,
            gid=launch.gid,
            groups=launch.groups,
            output=launch.output,
            error=launch.error,
            working_directory=launch.working_directory,
            job_name=launch.job_name,
            partition=launch.partition,
            vc=launch.vc,
            cluster=launch.cluster,
            launcher=launcher.name,
            cgroup=cgroup,
        )
        spec = KeeperSpec(
            node=NodeName(settings.name),
            desired=desired,
            launch=launch,
            facts=facts,
            state_dir=os.path.abspath(settings.state_dir),
            run_dir=os.path.abspath(settings.run_dir),
            timing=settings.timing,
            namespace=launcher.namespaces,
            covered_until=covered_until,
            gpu_numbers={gpu: self._index_of.get(gpu, 0) for gpu in desired.gpus},
            gpus_by_index=settings.gpus_by_index,
            cpus=settings.fake_cpus or psutil.cpu_count() or 1,
            checkpoint_tool=self._tool,
            checkpoint_lock_s=settings.checkpoint_lock_s,
            py_spy=self._py_spy,
            device_prefix=settings.device_prefix,
            start_limit_s=settings.start_limit_s,
            no_new_privileges=settings.no_new_privileges,
            hooks=settings.hooks.of_runs,
            container_tool=self._container_tool,
        )
        if self._units is not None:
            spec = self._in_unit(spec)
            return await self._units.start_keeper(spec, self._unit_properties(spec)), spec.facts
        try:
            return await self._zygote.start_keeper(spec), facts
        except CannotStartKeeper:
            await asyncio.to_thread(cgroups.remove, facts.cgroup)
            raise

    def _in_unit(self, spec: KeeperSpec) -> KeeperSpec:
        """Return a spec with the unit, and its cgroup, that systemd makes for the run."""
        root, unit = self._launcher.cgroup_root, systemd_units.unit_name(spec.desired, spec.rank)
        path = root and os.path.join(root, unit)
        return replace(spec, facts=replace(spec.facts, unit=unit, cgroup=path))

    def _unit_properties(self, spec: KeeperSpec) -> list[str]:
        prefix = self._settings.device_prefix
        return systemd_units.properties(
            spec.desired,
            records=run_files.RunFolder(spec.state_dir, spec.run_dir, spec.desired.key).records,
            allowed=systemd_units.devices(spec.desired.gpus, self._minor_of, prefix),
            oom_score_adj=spec.oom_score_adj,
        )

    @property
    def cgroup_root(self) -> str:
        """The folder of the cgroups that this agent itself makes; empty when it makes none."""
        return "" if self._units is not None else self._launcher.cgroup_root

    def close(self) -> None:
        """Start no more keepers."""
        if self._units is not None:
            self._units.close()


def _check_descriptors() -> None:
    """Refuse a start that would use up this process's last descriptors.

    With none left for the keeper's process, a keeper would run that this agent does not know.

    Raises:
        OSError: when they are used up.
    """
    taken = []
    try:
        for _ in range(_DESCRIPTORS):
            taken.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    finally:
        for fd in taken:
            os.close(fd)


class UnitStart:
    """Has systemd start keepers as units of their own, and sends each its spec."""

    def __init__(self, run_dir: str) -> None:
        """Listen for new units; each gets the spawning lock with its spec."""
        self._run_dir = run_dir
        self._path = os.path.join(os.path.abspath(run_dir), _SOCKET)
        self._starting: dict[str, asyncio.Future[socket.socket]] = {}  # connection, by unit
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self._path)
        os.chmod(self._path, 0o600)
        self._listener.listen(64)
        self._listener.setblocking(False)
        asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    async def start_keeper(self, spec: KeeperSpec, properties: Sequence[str]) -> StartedKeeper:
        """Have systemd start a keeper in a unit with these properties.

        Raises:
            CannotStartKeeper: when there is no keeper.
        """
        unit = spec.facts.unit
        if unit in self._starting:
            raise CannotStartKeeper(f"{unit} is being started already")
        connected: asyncio.Future[socket.socket] = asyncio.get_running_loop().create_future()
        self._starting[unit] = connected
        try:
            await self._start(unit, properties)
            line = await asyncio.wait_for(connected, _ASKS_S)
            with line:
                return await self._ask(line, spec)
        except TimeoutError:
            await self._end(unit)
            raise CannotStartKeeper(f"{unit} was started and never asked for its job") from None
        except NoAnswer:
            await self._end(unit)  # with the keeper that it may have forked
            raise
        finally:
            del self._starting[unit]

    async def _ask(self, line: socket.socket, spec: KeeperSpec) -> StartedKeeper:
        lock = spawning.shared_lock(self._run_dir)
        try:
            return await request_keeper(line, 1, spec, spec.facts.unit, [lock])
        finally:
            os.close(lock)

    async def _end(self, unit: str) -> None:
        """Kill a unit that does not answer, and wait until systemd has ended it.

        Raises:
            CannotStartKeeper: systemd does not.
        """
        for words in (("kill", "--signal=KILL"), ("stop",)):
            process = await asyncio.create_subprocess_exec(
                *("systemctl", "--quiet", "--no-ask-password", *words, unit),
                stdin=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            try:
                await asyncio.wait_for(process.wait(), _START_S)
            except TimeoutError:
                process.kill()
                await process.wait()
                raise CannotStartKeeper(f"{unit} does not answer and cannot be ended") from None

    async def _start(self, unit: str, properties: Sequence[str]) -> None:
        command = [
            *("systemd-run", "--quiet", "--collect", "--no-ask-password", "--service-type=exec"),
            *(f"--unit={unit}", f"--slice={systemd_units.SLICE}"),
            *(part for each in properties for part in ("-p", each)),
            *(f"--setenv={name}={value}" for name, value in keeper_environment().items()),
            *("--", *ZYGOTE, "--unit", self._path, unit),
        ]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        try:
            _, errors = await asyncio.wait_for(process.communicate(), _START_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            await self._end(unit)  # it may start it later
            raise CannotStartKeeper(f"systemd does not start {unit}") from None
        if process.returncode:
            lines = errors.decode("utf-8", "replace").strip().splitlines() or ["no reason given"]
            raise CannotStartKeeper(f"systemd: {lines[0]}")

    def _accept(self) -> None:
        """Take the connection of a unit that is being started; only root may connect."""
        with contextlib.suppress(OSError):
            line, _ = self._listener.accept()
            line.settimeout(1.0)  # its name is sent with the connection, as one message
            try:
                credentials = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                unit = line.recv(_NAME_BYTES).decode("ascii", "replace")
            except OSError:
                line.close()
                return
            connected = self._starting.get(unit)
            uid = struct.unpack("3i", credentials)[1]
            if connected is None or connected.done() or uid != os.geteuid():
                log.warning("unknown-unit unit=%r", unit)
                line.close()
                return
            line.setblocking(False)
            connected.set_result(line)

    def close(self) -> None:
        """Start no more units."""
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
