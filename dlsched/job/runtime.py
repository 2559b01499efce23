"""What the environment says about this process: its job, its run, its rank.

The runtime sets these variables for every process of a job; without them the values are those of a
program that runs alone. torchrun's variables have the same names and win, because it sets them
last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlsched.job.errors import JobError

PREEMPTED = 143  # exit code of a job that was asked to stop: 128 + SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One process of a run, as its environment describes it."""

    job: str = ""  # empty: not under a scheduler
    name: str = ""
    run_id: str = ""
    run: int = 0  # counts the starts of the job from 1; 0: not under a scheduler
    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    nodes: str = ""  # host list
    node_count: int = 1
    master_addr: str = "127.0.0.1"
    master_port: int = 0  # 0: none given
    control_socket: str = ""  # of the keeper
    checkpoint_folder: Path | None = None
    resume_from: Path | None = None  # the checkpoint that the daemon has recorded
    grace_s: int = 0  # from a stop request to the end; 0: not known
    fixed_batch: bool = False  # the user wants the batch size to stay
    in_place: bool = False  # its ranks hand their state over to those of the next run
    follows: bool = False  # it waits for the state of the run before
    local_batch: int = 0  # samples of each rank and pass that the daemon prefers; 0: none
    accumulation: int = 0  # passes before the one that synchronises
    gpu_share: float = 1.0  # of each GPU, which other jobs may share
    keep_checkpoints: int = 0  # as the submission says; 0: as the script says
    rungs: tuple[int, ...] = ()  # steps that are reported in any case: first, factor, maybe last
    cpus: int = 0  # processors of this node that the run may use, all its ranks; 0: not said
    warn_signal: int = 0  # comes before the time limit; 0: none does

    def is_rung(self, step: int) -> bool:
        """Whether the values of this step are reported in any case."""
        if not self.rungs:
            return False
        rung, factor, *last = self.rungs
        while rung < step:
            rung *= factor
        return rung == step and not (last and step > last[0])

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Runtime:
        """Read the variables.

        Raises:
            JobError: names the variable that is wrong.
        """

        def number(name: str, default: int, least: int = 0) -> int:
            text = environment.get(name, "")
            if not text:
                return default
            if not text.isascii() or not text.isdigit() or int(text) < least:
                raise JobError(f"{name}={text}: a whole number of at least {least} is needed")
            return int(text)

        def path(name: str) -> Path | None:
            text = environment.get(name, "")
            return Path(text) if text else None

        rank = number("RANK", 0)
        # users may set WORLD_SIZE for ranks that their script starts
        world_size = number("WORLD_SIZE", 1, least=1) if environment.get("RANK") else 1
        if rank >= world_size:
            raise JobError(f"RANK={rank} is not below WORLD_SIZE={world_size}")
        here = number("LOCAL_WORLD_SIZE", 1)
        return cls(
            job=environment.get("DLSCHED_JOB_ID", ""),
            name=environment.get("DLSCHED_JOB_NAME", ""),
            run_id=environment.get("DLSCHED_RUN_ID", ""),
            run=number("DLSCHED_RUN", 0),
            rank=rank,
            world_size=world_size,
            local_rank=number("LOCAL_RANK", 0),
            local_world_size=here,
            node_rank=number("NODE_RANK", number("GROUP_RANK", 0)),
            nodes=environment.get("DLSCHED_NODELIST", ""),
            node_count=min(number("DLSCHED_NNODES", -(-world_size // max(here, 1)), 1), world_size),
            master_addr=environment.get("MASTER_ADDR", "") or "127.0.0.1",
            master_port=number("MASTER_PORT", 0),
            control_socket=environment.get("DLSCHED_CTL_SOCK", ""),
            checkpoint_folder=path("DLSCHED_CKPT_DIR"),
            resume_from=path("DLSCHED_RESUME_FROM"),
            grace_s=number("DLSCHED_GRACE", 0),
            fixed_batch=environment.get("DLSCHED_FIXED_BATCH", "") == "1",
            in_place=environment.get("DLSCHED_IN_PLACE", "") == "1",
            follows=environment.get("DLSCHED_FOLLOWS", "") == "1",
            local_batch=number("DLSCHED_LOCAL_BATCH", 0),
            accumulation=number("DLSCHED_ACCUMULATION", 0),
            gpu_share=_share(environment.get("DLSCHED_GPU_SHARE", "")),
            keep_checkpoints=number("DLSCHED_KEEP_CHECKPOINTS", 0),
            rungs=_rungs(environment.get("DLSCHED_RUNGS", "")),
            cpus=number("DLSCHED_CPUS", 0),
            warn_signal=number("DLSCHED_WARN_SIGNAL", 0),
        )


def _rungs(text: str) -> tuple[int, ...]:
    parts = text.split(":") if text else []
    numbers = tuple(int(part) for part in parts if part.isascii() and part.isdigit())
    fits = len(numbers) == len(parts) and len(numbers) in (0, 2, 3)
    if not fits or (numbers and (numbers[0] < 1 or numbers[1] < 2)):
        raise JobError(f"DLSCHED_RUNGS={text}: FIRST:FACTOR or FIRST:FACTOR:LAST is needed")
    return numbers


def _share(text: str) -> float:
    try:
        share = float(text or "1")
    except ValueError:
        share = float("nan")
    if not 0 < share <= 1:
        raise JobError(f"DLSCHED_GPU_SHARE={text}: a number above 0 and at most 1 is needed")
    return share
