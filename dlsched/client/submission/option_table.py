"""The table of a submission's options, for the command line, directives and variables alike.

An option given in several ways is one *key*. Flags set `yes` or `no`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dlsched.client.submission.gpus import parse_gres

__all__ = ["OPTIONS", "Option"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: its key, the words for it, and whether `#SBATCH` lines may hold it."""

    key: str
    words: tuple[str, ...]
    help: str
    kind: Literal["value", "flag", "many"] = "value"
    metavar: str = ""
    slurm: bool = False
    says: str = "yes"  # what a flag sets
    convert: Callable[[str, str], str] | None = None

    @property
    def name(self) -> str:
        """The longest-standing word, without dashes, as a Python name."""
        longs = [word for word in self.words if word.startswith("--")]
        return longs[0][2:].replace("-", "_")


def _gres(what: str, text: str) -> str:
    """Slurm's `gpu:a100:2` as `--gpus-per-node` has it."""
    wish = parse_gres(what, text)
    return "|".join(f"{kind}:{wish.count}" for kind in wish.types) or str(wish.count)


def _option(
    key: str,
    words: str,
    help: str,
    metavar: str = "",
    *,
    slurm: bool = False,
    kind: Literal["value", "flag", "many"] = "value",
    says: str = "yes",
    convert: Callable[[str, str], str] | None = None,
) -> Option:
    return Option(
        key=key,
        words=tuple(words.split()),
        help=help,
        kind=kind,
        metavar=metavar,
        slurm=slurm,
        says=says,
        convert=convert,
    )


def _flag(key: str, words: str, help: str, *, slurm: bool = False, says: str = "yes") -> Option:
    return _option(key, words, help, slurm=slurm, kind="flag", says=says)


OPTIONS: tuple[Option, ...] = (
    _option("name", "-J --job-name --name", "What the job is called.", "TEXT", slurm=True),
    _option(
        "output",
        "-o --output",
        "File for the output: %j %A %a %x %u %N %n %t.",
        "PATTERN",
        slurm=True,
    ),
    _option(
        "error",
        "-e --error",
        "File for standard error. [default: with the output]",
        "PATTERN",
        slurm=True,
    ),
    _option("input", "-i --input", "Only /dev/null, which is the default.", "FILE", slurm=True),
    _option("chdir", "-D --chdir", "Where the job runs. [default: here]", "DIR", slurm=True),
    _option(
        "open_mode", "--open-mode", "append or truncate, on the first run.", "MODE", slurm=True
    ),
    _option("partition", "-p --partition", "Which nodes.", "NAME", slurm=True),
    _option("vc", "-A --account --vc", "Account or virtual cluster.", "NAME", slurm=True),
    _option("priority_class", "-q --qos --priority-class", "Priority class.", "NAME", slurm=True),
    _option("priority", "--priority", "A number; larger is earlier.", "N"),
    _option("nice", "--nice", "Slurm's: a priority of -N.", "N", slurm=True),
    _option(
        "gpus", "-G --gpus", "Of the whole job: 8, a100:8, 'a100:8|v100:8'.", "GPUS", slurm=True
    ),
    _option("gpus_per_node", "--gpus-per-node", "On each node: 4, a100:4.", "GPUS", slurm=True),
    _option(
        "gpus_per_node",
        "--gres",
        "Slurm's: gpu[:TYPE]:N on each node.",
        "GRES",
        slurm=True,
        convert=_gres,
    ),
    _option("gpus_per_task", "--gpus-per-task", "For each of the tasks.", "GPUS", slurm=True),
    _option("min_gpus", "--min-gpus", "Elastic: at least so many.", "N"),
    _option("max_gpus", "--max-gpus", "Elastic: at most so many.", "N"),
    _option("share", "--share", "Needs this part (below 1) of each GPU; may share them.", "X"),
    _option("constraint", "-C --constraint", "Slurm's: GPU types, a100|v100.", "TYPES", slurm=True),
    _option("nodes", "-N --nodes", "On exactly so many nodes.", "N", slurm=True),
    _option("ntasks", "-n --ntasks", "Ranks that `dlsched run` starts.", "N", slurm=True),
    _option("ntasks_per_node", "--ntasks-per-node", "Ranks on each node.", "N", slurm=True),
    _option("cpus", "--cpus", "Processors of the whole job.", "N"),
    _option("cpus_per_task", "-c --cpus-per-task", "Processors for each task.", "N", slurm=True),
    _option("cpus_per_gpu", "--cpus-per-gpu", "Processors for each GPU.", "N", slurm=True),
    _option("mem", "--mem", "Memory on each node: 64G; a bare number is MiB.", "SIZE", slurm=True),
    _option("mem_per_cpu", "--mem-per-cpu", "Memory for each processor.", "SIZE", slurm=True),
    _option("mem_per_gpu", "--mem-per-gpu", "Memory for each GPU.", "SIZE", slurm=True),
    _option("nodelist", "-w --nodelist", "Only on these nodes: n[1-3,7].", "HOSTS", slurm=True),
    _option("exclude", "-x --exclude", "Not on these nodes.", "HOSTS", slurm=True),
    _flag("exclusive", "--exclusive", "Whole nodes, shared with nobody.", slurm=True),
    _option(
        "time", "-t --time", "Time limit: 90 (minutes), 1:30:00, 2-12, 1h30m.", "LIMIT", slurm=True
    ),
    _option(
        "begin", "--begin", "Not before: now+1hour, 16:00, 2026-11-21T06:25.", "TIME", slurm=True
    ),
    _option(
        "deadline",
        "--deadline",
        "To be done by then; deadline policies plan for it.",
        "TIME",
        slurm=True,
    ),
    _option("expected", "--expected", "Your estimate of how long it takes.", "TIME"),
    _option(
        "dependency",
        "-d --dependency",
        "afterok:ID[:ID],…; also after, afterany, afternotok, aftercorr, singleton.",
        "LIST",
        slurm=True,
    ),
    _option(
        "kill_on_invalid_dep",
        "--kill-on-invalid-dep",
        "yes (default) or no: a dependency that can't be met cancels the job.",
        "YES",
    ),
    _flag(
        "kill_on_invalid_dep",
        "--keep-on-broken-dependency",
        "A job whose dependency can't be met stays.",
        says="no",
    ),
    _option("array", "-a --array", "One job for each: 0-9%2, 1,3,7, 0-15:4.", "TASKS", slurm=True),
    _flag("hold", "-H --hold", "Do not start before `dlsched release`.", slurm=True),
    _flag("requeue", "--requeue", "Queue again after a failure of a node (default).", slurm=True),
    _flag("requeue", "--no-requeue", "Never start a second time.", slurm=True, says="no"),
    _option("retries", "--retries", "Start again so often after failures of its own.", "N"),
    _option(
        "signal", "--signal", "Warn before the time limit: USR1@60 (seconds).", "SIG@S", slurm=True
    ),
    _option("grace", "--grace", "From a stop request to KILL: 120 (seconds), 2m.", "TIME"),
    _option("export", "--export", "Variables: ALL, NONE, NAME,NAME=VALUE,…", "LIST", slurm=True),
    _option("launch", "--launch", "batch: once; node: on each node; gpu: for each GPU.", "MODE"),
    _option("fence", "--fence", "hold or lease: what a node that hears nobody does.", "MODE"),
    _option("suspend", "--suspend", "freeze, cuda or cooperative.", "LEVEL"),
    _option("model", "--model", "What is trained; policies may know it.", "NAME"),
    _option("batch_size", "--batch-size", "Of the training.", "N"),
    _option("total_iterations", "--total-iterations", "Steps that the training takes.", "N"),
    _option("weight", "--weight", "For weighted policies.", "X"),
    _flag(
        "adaptive", "--adaptive", "Any number of GPUs, as the scheduler chooses; the batch follows."
    ),
    _flag("fixed_batch", "--fixed-batch", "Any number of GPUs, but the batch size stays."),
    _option(
        "set",
        "--set",
        "A further column for policies; as often as needed.",
        "KEY=VALUE",
        kind="many",
    ),
    _option("comment", "--comment", "Kept with the job.", "TEXT", slurm=True),
    _option("notify", "--notify", "begin, end, fail, preempt, requeue, all.", "EVENTS"),
    _option(
        "notify",
        "--mail-type",
        "Slurm's: BEGIN, END, FAIL, REQUEUE, ALL, NONE.",
        "EVENTS",
        slurm=True,
    ),
    _option(
        "mail_user", "--mail-user", "Noted only: the site's hook knows where to.", "WHO", slurm=True
    ),
    _flag("no_slurm_env", "--no-slurm-env", "Without the SLURM_… variables."),
    _flag("open_ended", "--open-ended", "Accept what no present node can run, and wait for one."),
    _flag("wait", "-W --wait", "Wait for the end; exit with the job's code.", slurm=True),
    _flag("parsable", "--parsable", "Print the id alone.", slurm=True),
)
