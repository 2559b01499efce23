"""From a desired run to a live keeper: its spec, its cgroup, its process."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace

from dlsched.nodeagent import leftovers, runfiles, units
from dlsched.nodeagent.gpus.backend import Inventory
from dlsched.nodeagent.launchers import Launcher
from dlsched.nodeagent.settings import Settings
from dlsched.nodeagent.spec import KeeperSpec, LaunchFacts
from dlsched.nodeagent.unit_births import UnitBirths
from dlsched.nodeagent.zygote_link import Born, CannotSpawn, ZygoteLink
from dlsched.protocol.messages import DesiredRun, NodeName


class Births:
    """Makes keepers on one node."""

    def __init__(
        self, settings: Settings, zygote: ZygoteLink, launcher: Launcher, gpus: Inventory
    ) -> None:
        self._settings, self._zygote, self.launcher = settings, zygote, launcher
        self._units: UnitBirths | None = None
        if launcher.name == "systemd":
            self._units = UnitBirths(settings.run_dir, zygote.spawning)
        self._numbers = {gpu.uuid: gpu.index for gpu in gpus.gpus}
        self._minors = {gpu.uuid: gpu.minor for gpu in gpus.gpus}
        self._tool = settings.checkpoint_tool or shutil.which("cuda-checkpoint") or ""

    async def make(
        self, desired: DesiredRun, launch: LaunchFacts, covered_until: float | None
    ) -> tuple[Born, runfiles.Facts]:
        """Make the keeper of a run.

        Raises:
            CannotSpawn: when there is none.
            OSError: when its cgroup cannot be made.
        """
        launcher, settings = self.launcher, self._settings
        folder = runfiles.folder_name(desired.key)
        facts = runfiles.Facts(
            user=launch.user,
            uid=launch.uid,
            gid=launch.gid,
            groups=launch.groups,
            output=launch.output,
            error=launch.error,
            working_directory=launch.working_directory,
            launcher=launcher.name,
            cgroup=await asyncio.to_thread(launcher.make_cgroup, folder, desired),
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
            gpu_numbers={gpu: self._numbers.get(gpu, 0) for gpu in desired.gpus},
            gpus_by_index=settings.gpus_by_index,
            cpus=os.cpu_count() or 1,
            checkpoint_tool=self._tool,
            checkpoint_lock_s=settings.checkpoint_lock_s,
            device_prefix=settings.device_prefix,
            start_limit_s=settings.start_limit_s,
            no_new_privileges=settings.no_new_privileges,
        )
        if self._units is None:
            try:
                return await self._zygote.spawn(spec), facts
            except CannotSpawn:
                await asyncio.to_thread(leftovers.remove_cgroup, facts.cgroup)
                raise
        unit = units.unit_name(desired, spec.rank)
        within = launcher.cgroup_root and os.path.join(launcher.cgroup_root, unit)
        spec = replace(spec, facts=replace(facts, unit=unit, cgroup=within))
        allowed = units.devices(desired.gpus, self._minors, settings.device_prefix)
        properties = units.properties(
            desired,
            records=runfiles.RunFolder(spec.state_dir, spec.run_dir, desired.key).records,
            allowed=allowed,
            oom_score_adj=spec.oom_score_adj,
        )
        return await self._units.spawn(spec, properties), spec.facts

    @property
    def cgroup_root(self) -> str:
        """Where this agent makes cgroups itself; empty: nowhere."""
        return "" if self.launcher.name == "systemd" else self.launcher.cgroup_root

    def close(self) -> None:
        """Make no more."""
        if self._units is not None:
            self._units.close()
