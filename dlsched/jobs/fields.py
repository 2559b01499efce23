"""The table of job fields.

Each row says everything about one field: how users write it, its bounds, how it travels, which
users may change it and when, and under which name and sign policies see it. Options, checks,
updates, views, JSON, traces, columns and launch specifications are derived from the rows. A new
field is a row here and, in `typed_forms`, a line in `JobFields` and, where policies see it, one in
`AskedColumns`.

This module imports nothing but the standard library and `field`, because every call of the command
line loads it.
"""

from __future__ import annotations

from typing import Any, Literal

from dlsched.jobs.field import Column, Field, Form, Option

MOST_GPUS = 1_000_000
DEADLINE_KINDS = ("strict", "soft", "best-effort")
STOPS = ("end", "target", "best")  # of a training
STOPS_UNDER_LOAD = ("target", "best", "either")
GUARANTEES = ("guaranteed", "opportunistic", "auto")
LEFTOVERS = GUARANTEES[1:]  # of jobs that need no part of a GPU to start
LATEST = 1e11  # seconds since the epoch


def _option(
    key: str,
    words: str,
    help: str,
    metavar: str = "",
    *,
    slurm: bool = False,
    grammar: Literal["", "gres"] = "",
) -> Option:
    return Option(
        key=key,
        words=tuple(words.split()),
        help=help,
        metavar=metavar,
        slurm=slurm,
        grammar=grammar,
    )


def _flag(key: str, words: str, help: str, *, slurm: bool = False, says: str = "yes") -> Option:
    return Option(
        key=key, words=tuple(words.split()), help=help, kind="flag", slurm=slurm, says=says
    )


def _row(name: str, form: Form, *options: Option, **more: Any) -> Field:
    """A row; what is sent has its own name on the wire unless the row says another."""
    return Field(name=name, form=form, options=options, **{"wire": name, **more})


def _of_call(name: str, *options: Option) -> Field:
    """A row of what the client combines with other rows or does itself."""
    return Field(name=name, options=options, kept="no")


# fmt: off
FIELDS: tuple[Field, ...] = (
    _row("name", "text",
        _option("name", "-J --job-name --name", "What the job is called.", "TEXT", slurm=True),
        longest=1024, update="always", clearable=False, csv="name", launch="job_name",
    ),
    _row("output", "pattern",
        _option(
            "output", "-o --output", "File for the output: %j %A %a %x %u %N %n %t.", "PATTERN",
            slurm=True,
        ),
        longest=4096, shown=False,
    ),
    _row("error", "pattern",
        _option(
            "error", "-e --error", "File for standard error. [default: with the output]", "PATTERN",
            slurm=True,
        ),
        longest=4096, shown=False,
    ),
    _row("label", "choice",
        _flag("label", "--label", "Begin each line with its rank. [default: in shared files]"),
        _flag("label", "--no-label", "Ranks that share a file write to it themselves.", says="no"),
        choices=("yes", "no"), shown=False,
    ),
    _of_call("input",
        _option("input", "-i --input", "Only /dev/null, which is the default.", "FILE", slurm=True),
    ),
    _row("working_directory", "text",
        _option("chdir", "-D --chdir", "Where the job runs. [default: here]", "DIR", slurm=True),
        longest=4096, shown=False, launch="working_directory",
    ),
    _row("truncate", "flag",
        _option(
            "open_mode", "--open-mode", "append or truncate, on the first run.", "MODE", slurm=True,
        ),
        shown=False,
    ),
    _row("partition", "text",
        _option("partition", "-p --partition", "Which nodes.", "NAME", slurm=True),
        update="waiting", launch="partition",
    ),
    _row("vc", "text",
        _option("vc", "-A --account --vc", "Account or virtual cluster.", "NAME", slurm=True),
        update="waiting", csv="vc", launch="vc",
    ),
    _row("priority_class", "text",
        _option(
            "priority_class", "-q --qos --priority-class", "Priority class.", "NAME", slurm=True,
        ),
        update="always", csv="class",
    ),
    _row("priority", "number",
        _option(
            "priority", "--priority",
            "A number; larger is earlier. Above 0: operators. [default: 0]", "N",
        ),
        _option("nice", "--nice", "Slurm's: a priority of -N.", "N", slurm=True),
        least=-1e15, update="always", csv="priority",
        column=Column(name="priority", doc="Larger goes first; NaN counts as 0."),
    ),
    _row("gpus", "whole",
        _option(
            "gpus", "-G --gpus", "Of the whole job: 8, a100:8, 'a100:8|v100:8'; 0: none.", "GPUS",
            slurm=True,
        ),
        most=MOST_GPUS, update="waiting", clearable=False, csv="num_gpus",
    ),
    _row("gpus_per_node", "whole",
        _option("gpus_per_node", "--gpus-per-node", "On each node: 4, a100:4.", "GPUS", slurm=True),
        _option(
            "gpus_per_node", "--gres", "Slurm's: gpu[:TYPE]:N[,…] on each node.", "GRES",
            slurm=True, grammar="gres",
        ),
        most=1024, kept="no",
    ),
    _of_call("gpus_per_task",
        _option("gpus_per_task", "--gpus-per-task", "For each of the tasks.", "GPUS", slurm=True),
    ),
    _row("min_gpus", "whole",
        _option("min_gpus", "--min-gpus", "Elastic: at least so many.", "N"),
        least=1, most=MOST_GPUS, update="waiting", csv="min_gpus",
        column=Column(name="min_gpus", doc="Fewest GPUs; -1: its gang.", unknown=-1, is_whole=True),
    ),
    _row("max_gpus", "whole",
        _option("max_gpus", "--max-gpus", "Elastic: at most so many.", "N"),
        least=1, most=MOST_GPUS, update="waiting", csv="max_gpus",
        column=Column(name="max_gpus", doc="Most GPUs; -1: its gang.", unknown=-1, is_whole=True),
    ),
    _row("gpu_share", "number",
        _option("share", "--share", "Needs this part (below 1) of each GPU; may share them.", "X"),
        label="share", most=1.0, wire="share", csv="gpu_share",
        column=Column(
            name="gpu_share",
            doc="Part of each GPU that it needs; 0: not said, so a policy may pair it with any.",
            unknown=0.0,
        ),
    ),
    _row("guarantee", "choice",
        _option(
            "guarantee", "--guarantee",
            "guaranteed (default), opportunistic: in what others leave; auto: what is sooner.",
            "KIND",
        ),
        _flag(
            "guarantee", "--opportunistic", "As --guarantee opportunistic.", says="opportunistic",
        ),
        choices=GUARANTEES, csv="guarantee",
        column=Column(
            name="guarantee",
            doc="0 guaranteed, 1 opportunistic, 2 auto; NaN: not said, so guaranteed.",
            of=lambda kind, submitted_at, nodes: float(GUARANTEES.index(kind)),
        ),
    ),
    _row("gpu_types", "names", update="waiting", csv="gpu_type"),
    _row("gpus_by_type", "text", label="GPUs by type", longest=1024, csv="gpus_by_type"),
    _row("constraint", "features",
        _option(
            "constraint", "-C --constraint", "Features of nodes and GPU types: a100&nvlink|h100.",
            "FEATURES", slurm=True,
        ),
        longest=1024, update="waiting", csv="constraint",
    ),
    _row("nodes", "whole",
        _option("nodes", "-N --nodes", "On so many nodes: 2, or 2-4.", "N", slurm=True),
        least=1, most=100_000, kept="no",
    ),
    _row("max_nodes", "whole", label="most nodes", least=1, most=100_000),
    _row("ntasks", "whole",
        _option("ntasks", "-n --ntasks", "Ranks that `dlsched run` starts.", "N", slurm=True),
        label="ntasks", least=1, most=1_000_000, launch="ntasks",
    ),
    _of_call("ntasks_per_gpu",
        _option("ntasks_per_gpu", "--ntasks-per-gpu", "Ranks for each GPU.", "N", slurm=True),
    ),
    _of_call("gpu_bind",
        _option(
            "gpu_bind", "--gpu-bind",
            "GPUs that each task of `srun` sees: single:N, map_gpu:0,1, per_task:N, none.", "HOW",
            slurm=True,
        ),
    ),
    _of_call("distribution",
        _option(
            "distribution", "-m --distribution",
            "How `srun` spreads tasks over nodes: block, cyclic, plane=N.", "HOW", slurm=True,
        ),
    ),
    _row("ntasks_per_node", "whole",
        _option(
            "ntasks_per_node", "--ntasks-per-node --tasks-per-node", "Ranks on each node.", "N",
            slurm=True,
        ),
        label="ntasks per node", least=1, most=1_000_000, launch="ntasks_per_node",
    ),
    _row("cpus_per_task", "whole",
        _option(
            "cpus_per_task", "-c --cpus-per-task", "Processors for each task.", "N", slurm=True,
        ),
        label="cpus per task", least=1, most=1_000_000, launch="cpus_per_task",
    ),
    _row("cpus", "whole",
        _option("cpus", "--cpus", "Processors of the whole job.", "N"),
        _option("cpus_per_gpu", "--cpus-per-gpu", "Processors for each GPU.", "N", slurm=True),
        least=1, most=1_000_000_000, csv="num_cpus",
        column=Column(name="cpus", doc="Processors of the whole gang."),
    ),
    _row("memory_bytes", "whole",
        _option(
            "mem", "--mem", "Memory on each node: 64G; a bare number is MiB.", "SIZE", slurm=True,
        ),
        _option("mem_per_cpu", "--mem-per-cpu", "Memory for each processor.", "SIZE", slurm=True),
        _option("mem_per_gpu", "--mem-per-gpu", "Memory for each GPU.", "SIZE", slurm=True),
        label="memory", least=1, most=1 << 60, csv="memory_gb",
        column=Column(
            name="memory_gb", doc="Memory of the whole gang, 10^9 bytes.",
            of=lambda size, submitted_at, nodes: size / 1e9 * nodes,
        ),
    ),
    _row("tmp_bytes", "whole",
        _option("tmp", "--tmp", "Disk that /tmp must have on each node: 100G.", "SIZE", slurm=True),
        label="temporary disk", least=1, most=1 << 60,
    ),
    _row("only_nodes", "hosts",
        _option("nodelist", "-w --nodelist", "Only on these nodes: n[1-3,7].", "HOSTS", slurm=True),
        update="waiting",
    ),
    _row("reservation", "text",
        _option(
            "reservation", "--reservation", "Nodes reserved under this name.", "NAME", slurm=True,
        ),
        update="waiting",
    ),
    _row("not_nodes", "hosts",
        _option("exclude", "-x --exclude", "Not on these nodes.", "HOSTS", slurm=True),
        update="waiting",
    ),
    _row("exclusive", "flag",
        _flag("exclusive", "--exclusive", "Whole nodes, shared with no job.", slurm=True),
        csv="exclusive",
    ),
    _row("time_limit_s", "limit",
        _option(
            "time", "-t --time", "Time limit: 90 (minutes), 1:30:00, 2-12, 1h30m.", "LIMIT",
            slurm=True,
        ),
        least=1.0, update="always", csv="time_limit",
        column=Column(name="time_limit", doc="The user's own limit in seconds; NaN: none."),
    ),
    _row("time_min_s", "limit",
        _option(
            "time_min", "--time-min", "The limit may be lowered to this, to start earlier.",
            "LIMIT", slurm=True,
        ),
        label="least time limit", least=1.0, csv="time_min",
        column=Column(
            name="time_min", doc="Its limit may be lowered to this many seconds; NaN: not at all.",
        ),
    ),
    _row("begin_at", "moment",
        _option(
            "begin", "--begin", "Not before: now+1hour, 16:00, 2026-11-21T06:25.", "TIME",
            slurm=True,
        ),
        most=LATEST, update="waiting",
    ),
    _row("deadline_at", "moment",
        _option(
            "deadline", "--deadline", "To be done by then; deadline policies plan for it.", "TIME",
            slurm=True,
        ),
        most=LATEST, update="always", csv="deadline", launch="deadline_at",
        column=Column(
            name="deadline", doc="Seconds after the submit, smaller is more urgent; NaN: none.",
            of=lambda at, submitted_at, nodes: at - submitted_at,
        ),
    ),
    _row("deadline_value", "number",
        _option("deadline_value", "--deadline-value", "What meeting the deadline is worth.", "X"),
        update="always", csv="deadline_value",
        column=Column(
            name="deadline_value",
            doc="What meeting the deadline is worth, larger is more; NaN: not said.",
        ),
    ),
    _row("deadline_kind", "choice",
        _option(
            "deadline_kind", "--deadline-kind",
            "strict: then it is cancelled; soft: it goes on; best-effort: not planned for.", "KIND",
        ),
        _flag(
            "deadline_kind", "--best-effort", "As --deadline-kind best-effort.", says="best-effort",
        ),
        choices=DEADLINE_KINDS, update="always", csv="deadline_kind",
        column=Column(
            name="deadline_kind", doc="0 strict, 1 soft, 2 best effort; NaN: not said, so strict.",
            of=lambda kind, submitted_at, nodes: float(DEADLINE_KINDS.index(kind)),
        ),
    ),
    _row("sla", "curve",
        _option(
            "sla", "--sla",
            "Reward by time since the submit: soft:2h,100,30m or '0:100 2h:100 3h:0'.", "CURVE",
        ),
        longest=1024, csv="sla", further=True,
    ),
    _row("expected_s", "seconds",
        _option("expected", "--expected", "Your estimate of how long it takes.", "TIME"),
        label="expected time", update="always", csv="expected",
    ),
    _row("dependencies", "own",
        _option(
            "dependency", "-d --dependency",
            "afterok:ID[:ID],…; also after, afterany, afternotok, aftercorr, singleton.", "LIST",
            slurm=True,
        ),
        wire="",
    ),
    _row("keep_on_broken_dependency", "flag",
        _option(
            "kill_on_invalid_dep", "--kill-on-invalid-dep",
            "yes (default) or no: a dependency that can't be met cancels the job.", "YES",
            slurm=True,
        ),
        _flag(
            "kill_on_invalid_dep", "--keep-on-broken-dependency",
            "A job whose dependency can't be met stays.", says="no",
        ),
        wire="broken_dependency",
    ),
    _of_call("array",
        _option(
            "array", "-a --array", "One job for each: 0-9%2, 1,3,7, 0-15:4.", "TASKS", slurm=True,
        ),
    ),
    _of_call("sweep",
        _option("sweep", "--sweep", "One job for each row; columns are its parameters.", "CSV"),
        _option(
            "sweep_concurrent", "--sweep-concurrent", "So many jobs of the sweep at once.", "N",
        ),
        _option(
            "halving", "--halving",
            "Stop what is behind: metric=loss,mode=min,eta=3,rung=STEPS[,max=STEPS].", "RULE",
        ),
    ),
    _of_call("tasks",
        _option("tasks", "--tasks", "Short tasks, a line for the shell each.", "FILE"),
        _option("tokens", "--tokens", "So many of them at once; each has what is asked for.", "N"),
    ),
    _row("held", "flag",
        _flag("hold", "-H --hold", "Do not start before `dlsched release`.", slurm=True),
        kept="no",
    ),
    _row("requeue", "flag",
        _flag(
            "requeue", "--requeue", "Queue again after a failure of a node (default).", slurm=True,
        ),
        _flag("requeue", "--no-requeue", "Never start a second time.", slurm=True, says="no"),
        wire="no_requeue", inverted=True,
    ),
    _row("requeue_on_timeout", "flag",
        _flag(
            "requeue_on_timeout", "--requeue-on-timeout",
            "Queue again when the time limit ends a run, as often as the site allows.",
        ),
    ),
    _row("retries", "whole",
        _option("retries", "--retries", "Start again so often after failures of its own.", "N"),
        most=1_000_000, kept="request", update="always", clearable=False,
    ),
    _row("gpu_retries", "whole",
        _option(
            "gpu_retries", "--gpu-retries",
            "Start again so often in a row after faults of its GPUs.", "N",
        ),
        label="GPU retries", least=0, most=1_000_000,
    ),
    _row("retry_elsewhere", "flag",
        _flag(
            "retry_elsewhere", "--retry-elsewhere",
            "Retry through the queue, on any GPUs; else at once on its own.",
        ),
    ),
    _row("resume_from", "text",
        _option("resume_from", "--resume-from", "Begin at this job's newest checkpoint.", "ID"),
        longest=64,
    ),
    _row("keep_checkpoints", "whole",
        _option("keep", "--keep", "How many checkpoints are kept while the job lives.", "N"),
        label="checkpoints kept", least=1, most=10_000, launch="keep_checkpoints",
    ),
    _of_call("signal",
        _option(
            "signal", "--signal",
            "Warn before the time limit: USR1@60 (seconds); B: only the script, P: preempted too.",
            "[B|P:]SIG@S",
            slurm=True,
        ),
    ),
    _row("warn_signal", "whole", label="signal", most=64, launch="warn_signal"),
    _row("warn_before_s", "seconds", label="warning", launch="warn_before_s"),
    _row("warn_script_only", "flag", launch="warn_script_only"),
    _row("warn_at_preemption", "flag", launch="warn_at_preemption"),
    _row("grace_s", "seconds",
        _option("grace", "--grace", "From a stop request to KILL: 120 (seconds), 2m.", "TIME"),
        bare="seconds", kept="request", update="always", clearable=False,
    ),
    _of_call("export",
        _option(
            "export", "--export", "Variables: ALL, NONE, NAME,NAME=VALUE,…", "LIST", slurm=True,
        ),
    ),
    _row("mode", "choice",
        _option(
            "launch", "--launch", "batch: once; node: on each node; gpu: for each GPU.", "MODE",
        ),
        choices=("batch", "node", "gpu"), kept="request",
    ),
    _row("on_hang", "choice",
        _option(
            "on_hang", "--on-hang",
            "When no step is reported for long: requeue, fail, tell or off.", "ACTION",
        ),
        choices=("requeue", "fail", "tell", "off"), update="always",
    ),
    _row("hang_factor", "number",
        _option("hang_factor", "--hang-factor", "How many usual step times are long.", "N"),
        least=2.0, most=1e9, update="always",
    ),
    _row("fence", "choice",
        _option("fence", "--fence", "On a cut-off node: lease (freezes), hold (runs on).", "MODE"),
        choices=("hold", "lease"), kept="request",
    ),
    _row("suspend_level", "choice",
        _option("suspend", "--suspend", "freeze, cuda or cooperative.", "LEVEL"),
        choices=("freeze", "cuda", "cooperative"), kept="request",
    ),
    _row("model", "text",
        _option("model", "--model", "What is trained; policies may know it.", "NAME"),
        csv="model", further=True,
    ),
    _row("cell", "text",
        _option("cell", "--cell", "A cell pinned to the virtual cluster (hived).", "NAME"),
        update="waiting", csv="cell", further=True,
    ),
    _row("batch_size", "number",
        _option("batch_size", "--batch-size", "Of the training.", "N"),
        csv="batch_size", further=True,
    ),
    _row("total_iterations", "number",
        _option("total_iterations", "--total-iterations", "Steps that the training takes.", "N"),
        most=1e18, csv="total_iterations", further=True,
    ),
    _row("target_accuracy", "number",
        _option(
            "target_accuracy", "--target-accuracy",
            "Accuracy that the training needs, as its metric `accuracy`.", "X",
        ),
        update="always", csv="target_accuracy",
        column=Column(name="target_accuracy", doc="Accuracy that it needs; NaN: not said."),
    ),
    _row("stop_when", "choice",
        _option(
            "stop_when", "--stop-when",
            "end (default); target: accurate enough; best: it gains no more (mlfs).", "WHEN",
        ),
        choices=STOPS, update="always", csv="stop_when",
        column=Column(
            name="stop_when",
            doc="When its training ends: 0 end, 1 target, 2 best; NaN: not said, so end.",
            of=lambda when, submitted_at, nodes: float(STOPS.index(when)),
        ),
    ),
    _row("stop_under_load", "choice",
        _option(
            "stop_under_load", "--stop-under-load",
            "While GPUs are short: target, best, or either, whichever comes first (mlfs).", "WHEN",
        ),
        choices=STOPS_UNDER_LOAD, update="always", csv="stop_under_load",
        column=Column(
            name="stop_under_load",
            doc="When it may end while GPUs are short: 0 target, 1 best, 2 either; NaN: no sooner.",
            of=lambda when, submitted_at, nodes: float(STOPS_UNDER_LOAD.index(when)),
        ),
    ),
    _row("weight", "number",
        _option("weight", "--weight", "For weighted policies: larger gets more.", "X"),
        update="always", csv="weight",
        column=Column(name="weight", doc="Share weight, larger gets more; NaN: not said."),
    ),
    _row("adaptive", "flag",
        _flag(
            "adaptive", "--adaptive",
            "Any number of GPUs, as the scheduler chooses; the batch follows.",
        ),
    ),
    _row("fixed_batch", "flag",
        _flag("fixed_batch", "--fixed-batch", "Any number of GPUs, but the batch size stays."),
        launch="fixed_batch",
    ),
    _row("in_place", "flag",
        _flag(
            "in_place", "--in-place",
            "Its next ranks get ready while it runs, and take its state over.",
        ),
        launch="in_place",
    ),
    _row("extra", "own",
        Option(
            key="set", words=("--set",), help="A further column for policies; as often as needed.",
            kind="many", metavar="KEY=VALUE",
        ),
        shown=False, wire="",
    ),
    _row("comment", "lines",
        _option("comment", "--comment", "Kept with the job.", "TEXT", slurm=True),
        longest=4096, update="always",
    ),
    _row("notify", "events",
        _option(
            "notify", "--notify",
            "Tell of: begin, end, fail, preempt, requeue, checkpoint, time_limit_90, all.",
            "EVENTS",
        ),
        _option(
            "notify", "--mail-type", "Slurm's: BEGIN, END, FAIL, REQUEUE, ALL, NONE.", "EVENTS",
            slurm=True,
        ),
        longest=4096, update="always",
    ),
    _row("notify_url", "text",
        _option("notify_url", "--notify-url", "Tell this URL, if the site allows it.", "URL"),
        longest=1024, shown=False,
    ),
    _row("mail_user", "text",
        _option(
            "mail_user", "--mail-user", "Mail to these, not to you: NAME@HOST,…", "ADDRESS",
            slurm=True,
        ),
        longest=1024, shown=False,
    ),
    _row("container", "text",
        _option(
            "container", "--container --container-image",
            "Run in this image, through Apptainer or enroot: image.sif, docker://…", "IMAGE",
            slurm=True,
        ),
        longest=1024, shown=False, launch="container",
    ),
    _row("container_mounts", "text",
        _option(
            "container_mounts", "--container-mounts",
            "Folders in the container: /data, /data:/mnt:ro, …", "LIST", slurm=True,
        ),
        label="container mounts", longest=4096, shown=False, launch="container_mounts",
    ),
    _row("slurm_environment", "flag",
        _flag("slurm_env", "--no-slurm-env", "Without the SLURM_… variables.", says="no"),
        wire="no_slurm_environment", inverted=True, launch="slurm_environment",
    ),
    _row("open_ended", "flag",
        _flag(
            "open_ended", "--open-ended", "Accept what no present node can run, and wait for one.",
        ),
        kept="no",
    ),
    _of_call("wait",
        _flag("wait", "-W --wait", "Wait for the end; exit with the job's code.", slurm=True),
    ),
    _of_call("parsable", _flag("parsable", "--parsable", "Print the id alone.", slurm=True)),
    _row("submit_host", "text", shown=False, launch="submit_host"),
    _row("script_path", "text", longest=4096, shown=False),  # of the submitted script
    _row("terminal", "text", longest=16, shown=False, launch="terminal"),
    _row("umask", "whole", least=0, most=0o777, shown=False, launch="umask"),
    _row("account", "text", csv="account", wire=""),
)
# fmt: on

BY_NAME: dict[str, Field] = {row.name: row for row in FIELDS}
OPTIONS: tuple[Option, ...] = tuple(option for row in FIELDS for option in row.options)
# what `dlsched update` takes; types come with `--gpus`
UPDATE_OPTIONS: tuple[Option, ...] = tuple(
    row.options[0]
    for row in FIELDS
    if row.update != "never" and row.options and row.form != "names"
)
COLUMNS: dict[str, tuple[Field, Column]] = {
    row.column.name: (row, row.column) for row in FIELDS if row.column is not None
}
FURTHER: dict[str, Field] = {row.csv: row for row in FIELDS if row.further}
CSV: dict[str, Field] = {row.csv: row for row in FIELDS if row.csv}
