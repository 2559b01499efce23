"""The options of `srun` inside a job: what is carried out, what has no effect here.

An option that is in neither table is refused by its name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dlsched.job.errors import JobError

__all__ = ["NOTED", "OPTIONS", "Given", "Option", "WrongUse", "help_page", "option_of", "read"]


class WrongUse(JobError):
    """The command line is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option: `takes` names its value; empty: it has none.

    Attributes:
        words: how it is written.
        help: one line; empty: not in the help.
        takes: what stands for its value in the help.
        alone: its value where it is given without one, which then comes glued to it only.
        variable: of the environment that says the same.
    """

    words: tuple[str, ...]
    help: str
    takes: str = ""
    alone: str | None = None
    variable: str = ""

    @property
    def key(self) -> str:
        """The first long word, as a Python name."""
        return next(word for word in self.words if word[:2] == "--")[2:].replace("-", "_")


def _of(
    words: str, help_: str, takes: str = "", alone: str | None = None, variable: str = ""
) -> Option:
    return Option(
        words=tuple(words.split()), help=help_, takes=takes, alone=alone, variable=variable
    )


OPTIONS = (
    _of("-N --nodes", "On so many nodes.", "N"),
    _of("-n --ntasks", "Tasks in all.", "N"),
    _of("--ntasks-per-node --tasks-per-node", "Tasks on each node.", "N"),
    _of("--ntasks-per-gpu", "Tasks for each GPU.", "N"),
    _of("-w --nodelist", "On these nodes.", "HOSTS"),
    _of("-x --exclude", "Not on these nodes.", "HOSTS"),
    _of("-r --relative", "From this node of the job on: 0 is the first.", "N"),
    _of(
        "-m --distribution", "Tasks in blocks, or nodes in turn: block, cyclic, plane=N.", "HOW",
        variable="SLURM_DISTRIBUTION",
    ),
    _of("-c --cpus-per-task", "Told to the tasks.", "N"),
    _of("--gres", "GPUs on each node, of this call alone.", "gpu:N"),
    _of("--gpus-per-node", "As --gres.", "N"),
    _of("-G --gpus", "GPUs in all, of this call alone.", "N"),
    _of("--gpus-per-task", "GPUs that each task sees.", "N"),
    _of(
        "--gpu-bind --tres-bind", "Which it sees: single:N, map_gpu:0,1, per_task:N, none.", "HOW",
        variable="SLURM_GPU_BIND",
    ),
    _of("--overlap", "Share GPUs with other calls.", variable="SLURM_OVERLAP"),
    _of(
        "-I --immediate", "Give up unless it starts within so many seconds (1).", "S", "1",
        variable="SLURM_IMMEDIATE",
    ),
    _of("-t --time", "End the tasks after so long.", "TIME", variable="SLURM_TIMELIMIT"),
    _of("--export", "ALL, NONE, NAME,NAME=VALUE,…", "LIST", variable="SLURM_EXPORT_ENV"),
    _of(
        "-o --output", "For the output: %t %N %n %j %s.", "FILE", variable="SLURM_STDOUTMODE",
    ),
    _of("-e --error", "For standard error.", "FILE", variable="SLURM_STDERRMODE"),
    _of(
        "--open-mode", "append or truncate: the job's, if it has.", "MODE",
        variable="SLURM_OPEN_MODE",
    ),
    _of(
        "-i --input", "What tasks read: all, none, a task, a file.", "WHAT",
        variable="SLURM_STDINMODE",
    ),
    _of("-J --job-name", "What the step is called in sacct.", "NAME"),
    _of("--jobid", "Only this job's own.", "ID"),
    _of("--multi-prog", "The command is a file that says which task runs what."),
    _of("--mpi", "none: tasks are plain processes; list: what there is.", "KIND",
        variable="SLURM_MPI_TYPE"),
    _of("--pty", "Here, on this terminal."),
    _of("-l --label", "Begin each line with its rank.", variable="SLURM_LABELIO"),
    _of(
        "-K --kill-on-bad-exit", "End all tasks when one fails; -K0: the others go on (default).",
        "0", "1", variable="SLURM_KILL_BAD_EXIT",
    ),
    _of(
        "-W --wait", "End all tasks so many seconds after the first one has ended (0: never).",
        "S", variable="SLURM_WAIT",
    ),
    _of("-D --chdir", "Where the tasks start.", "FOLDER", variable="SLURM_WORKING_DIR"),
    _of("-Q --quiet", "Without notes."),
    _of("-h --help --usage", "Show this and exit."),
    # so it is here without them
    _of("-u --unbuffered", ""),
    _of("-O --overcommit", ""),
    _of("--exact", ""),
    _of("--exclusive", ""),
    _of("-k --no-kill", ""),
    _of("-X --disable-status", ""),
    _of("--quit-on-interrupt", ""),
)  # fmt: skip
_VALUES_NOTED = (
    *("--cpu-bind", "--mem-bind", "--hint", "--threads-per-core", "--cores-per-socket"),
    *("--sockets-per-node", "--extra-node-info", "-B", "--ntasks-per-core", "--ntasks-per-socket"),
    *("--core-spec", "-S", "--thread-spec", "--mincpus", "--cpus-per-gpu", "--cpu-freq"),
    *("--gpu-freq", "--mem", "--mem-per-cpu", "--mem-per-gpu", "--tmp", "--accel-bind"),
    *("--partition", "-p", "--account", "-A", "--qos", "-q", "--wckey", "--mcs-label"),
    *("--comment", "--extra", "--priority", "--acctg-freq", "--profile", "--network"),
    *("--switches", "--gres-flags", "--delay-boot", "--msg-timeout", "--slurmd-debug"),
    *("--bcast-exclude", "--segment", "--threads", "-T"),
)
# a value comes after `=` only
_FLAGS_NOTED = (
    *("--oversubscribe", "-s", "--verbose", "-v", "--whole", "--preserve-env", "-E"),
    *("--contiguous", "--use-min-nodes", "--spread-job", "--propagate", "--resv-ports"),
    *("--bcast", "--compress", "--send-libs", "--oom-kill-step", "--stepmgr", "--nice"),
)
# by word: whether a value follows it
NOTED = {**dict.fromkeys(_VALUES_NOTED, True), **dict.fromkeys(_FLAGS_NOTED, False)}
_BY_WORD = {word: option for option in OPTIONS for word in option.words}


@dataclass(slots=True, kw_only=True)
class Given:
    """A command line.

    Attributes:
        said: the texts of options by key; those without a value have `1`.
        command: and its arguments.
        noted: words of options that have no effect here.
        variables: which of `said` a variable has said, by key.
    """

    said: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    noted: dict[str, None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    def text(self, key: str) -> str:
        """What an option says; empty: it is not given."""
        return self.said.get(key, "")

    def name_of(self, key: str) -> str:
        """What said it, for errors."""
        return self.variables.get(key) or f"--{key.replace('_', '-')}"

    def take(self, todo: list[str]) -> None:
        """Take the option that comes first off a list of words, with its value.

        Raises:
            WrongUse: it is not known, or its value is missing or too much.
        """
        _take(self, todo.pop(0), todo)

    def fill(self, environment: Mapping[str, str], left_out: Collection[str] = ()) -> None:
        """Take what variables say of options that are not given, but for keys that are left out."""
        for option in OPTIONS:
            text = environment.get(option.variable, "") if option.variable else ""
            if text and option.key not in self.said and option.key not in left_out:
                if not option.takes and text.lower() in ("0", "no"):
                    continue
                self.said[option.key] = text
                self.variables[option.key] = option.variable

    def words(self) -> list[str]:
        """The options as words of a command line."""
        takes = {option.key for option in OPTIONS if option.takes}
        names = {key: f"--{key.replace('_', '-')}" for key in self.said}
        return [names[key] + (f"={self.said[key]}" if key in takes else "") for key in self.said]


def option_of(word: str) -> str | None:
    """The key of a word's option, with or without a value in it; None: it is not known."""
    name = word.partition("=")[0] if word.startswith("--") else word[:2]
    option = _BY_WORD.get(name)
    return None if option is None else option.key


def read(words: Sequence[str], environment: Mapping[str, str]) -> Given:
    """Read a command line; what it leaves open, variables say.

    Raises:
        WrongUse: an option that is not known, or without its value.
    """
    given = Given()
    todo = list(words)
    while todo and todo[0].startswith("-") and todo[0] not in ("-", "--"):
        given.take(todo)
    del todo[: todo[:1] == ["--"]]
    given.command = todo
    if ":" in todo:
        raise WrongUse(
            ":: heterogeneous steps are not supported; start each part with its own srun"
        )
    given.fill(environment)
    return given


def _take(given: Given, word: str, todo: list[str]) -> None:
    """Take one option, and its value off the words after it."""
    name, equals, value = word.partition("=")
    glued = not word.startswith("--") and len(word) > 2
    if glued:
        name, equals, value = word[:2], "", word[2:]
    option = _BY_WORD.get(name)
    if option is None and name not in NOTED:
        raise WrongUse(f"{name}: not supported; --help lists what is")
    takes_next = NOTED[name] if option is None else bool(option.takes) and option.alone is None
    if takes_next and not (equals or glued):
        if not todo:
            raise WrongUse(f"{name}: needs a value")
        value = todo.pop(0)
    if option is None:
        given.noted[name] = None
        if glued and not takes_next:
            todo.insert(0, f"-{value}")  # -vl
        return
    if option.takes:
        given.said[option.key] = value if takes_next or equals or glued else option.alone or ""
        return
    if glued:
        todo.insert(0, f"-{value}")
    elif equals and option.key == "exclusive":  # with which other jobs a node is shared
        given.noted[word] = None
        return
    elif equals:
        raise WrongUse(f"{name}: takes no value")
    given.said[option.key] = "1"


def help_page() -> Iterator[str]:
    """The lines of `--help`."""
    yield "usage: srun [OPTIONS] COMMAND [ARGUMENT]..."
    yield ""
    yield "Start tasks inside a job, on all or some of its nodes, and wait for them."
    yield ""
    for option in OPTIONS:
        if option.help:
            words = ", ".join(option.words) + (f" {option.takes}" if option.takes else "")
            also = f" [{option.variable}]" if option.variable else ""
            yield f"  {words:<38} {option.help}{also}"
    yield ""
    yield f"Without effect here: {' '.join(NOTED)}"
