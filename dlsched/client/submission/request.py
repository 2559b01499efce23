"""From options and a command to the request that the daemon gets.

The grammar of an option is imported when the option is there: a start is most of what a call costs.
"""

from __future__ import annotations

import math
import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dlsched.client.submission.durations import duration, time_limit
from dlsched.client.submission.exports import exported
from dlsched.client.submission.resources import Resources, resources
from dlsched.client.submission.texts import check_text, check_words, shorten, whole_number
from dlsched.core.errors import BadInput
from dlsched.rpc.v1 import control_pb2, run_pb2

__all__ = ["Caller", "Command", "Submission", "compose"]

_NOTIFY = {"begin", "end", "fail", "preempt", "requeue", "all", "none"}
_NAMES = ("partition", "vc", "priority_class", "model")
_LARGEST = 1e15


def _words(enum: Any, prefix: str) -> dict[str, int]:
    """An enumeration of the wire by the words of its options."""
    return {name.removeprefix(prefix).lower(): value for name, value in enum.items() if value}


_MODES = {
    "launch": ("mode", _words(run_pb2.LaunchMode, "LAUNCH_MODE_")),
    "fence": ("fence", _words(run_pb2.Fence, "FENCE_")),
    "suspend": ("suspend_level", _words(run_pb2.SuspendLevel, "SUSPEND_LEVEL_")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Where and when the submission is made."""

    directory: str
    host: str
    variables: Mapping[str, str] = field(repr=False)
    now: datetime  # with its zone
    # by choice, so that many submissions of one call share them
    _exports: dict[str, dict[str, str]] = field(default_factory=dict, repr=False, compare=False)

    def exported(self, choice: str) -> dict[str, str]:
        """The variables that `--export` chooses; not to be changed."""
        found = self._exports.get(choice)
        if found is None:
            found = self._exports[choice] = exported("--export", choice, self.variables)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """What is to run: a script with arguments, or a command alone."""

    argv: tuple[str, ...] = ()
    script: bytes = b""
    name: str = ""  # where the user gives none


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A request, and what the client itself is to do."""

    request: control_pb2.JobRequest
    environment: Mapping[str, str] = field(repr=False)  # not yet in the request
    notes: tuple[str, ...] = ()
    wait: bool = False
    parsable: bool = False


def compose(options: Mapping[str, str], command: Command, caller: Caller) -> Submission:
    """Build one job, or one array.

    Args:
        options: texts by key, already merged.
        command: what is to run.
        caller: where and when.

    Raises:
        BadInput: any option is malformed, or some contradict each other.
    """
    notes: list[str] = []
    request = control_pb2.JobRequest(
        name=check_text("--name", options.get("name") or command.name, longest=255),
        argv=check_words("arguments", command.argv),
        script=command.script,
        working_directory=_directory(options, caller),
        submit_host=caller.host,
        comment=check_text("--comment", options.get("comment", ""), empty=True),
        notify=_notify(options.get("notify", "")),
    )
    for key in _NAMES:
        if key in options:
            setattr(request, key, check_text(_word(key), options[key], longest=255))
    _set_files(request, options)
    wanted = resources(options)
    _set_resources(request, wanted)
    _set_times(request, options, caller, notes)
    _set_handling(request, options)
    _set_numbers(request, options)
    if "mail_user" in options:
        notes.append("--mail-user: not used; where notifications go is the site's setting")
    variables = caller.exported(options.get("export", "ALL"))
    of_tasks = _of_tasks(wanted, slurm=not request.no_slurm_environment)
    return Submission(
        request=request,
        environment=variables | of_tasks if of_tasks else variables,
        notes=tuple(notes),
        wait=_on(options, "wait"),
        parsable=_on(options, "parsable"),
    )


def _word(key: str) -> str:
    return "--" + key.replace("_", "-")


def _on(options: Mapping[str, str], key: str) -> bool:
    return options.get(key) == "yes"


def _directory(options: Mapping[str, str], caller: Caller) -> str:
    chosen = os.path.join(caller.directory, os.path.expanduser(options.get("chdir", "")))
    return check_text("--chdir", os.path.normpath(chosen), longest=4096)


def _set_files(request: control_pb2.JobRequest, options: Mapping[str, str]) -> None:
    for key in ("output", "error"):
        if key in options:
            from dlsched.client.submission.output_patterns import output_pattern  # noqa: PLC0415

            setattr(request, key, output_pattern(_word(key), options[key]))
    if options.get("input", "/dev/null") not in {"/dev/null", "none"}:
        raise BadInput(
            f"--input: {shorten(options['input'])!r}: only /dev/null; redirect in the script"
        )
    request.truncate = _choice(options, "open_mode", ("append", "truncate"), "append") == "truncate"


def _set_resources(request: control_pb2.JobRequest, wanted: Resources) -> None:
    for key in (
        *("gpus", "nodes", "gpus_per_node", "min_gpus", "max_gpus", "share"),
        *("cpus", "memory_bytes"),
    ):
        value = getattr(wanted, key)
        if value is not None:
            if isinstance(value, int) and key != "memory_bytes" and value >= 2**31:
                raise BadInput(f"{_word(key)}: {value} is out of bounds")
            setattr(request, key, value)
    request.gpu_types.extend(wanted.gpu_types)


def _set_times(
    request: control_pb2.JobRequest, options: Mapping[str, str], caller: Caller, notes: list[str]
) -> None:
    if "time" in options:
        limit = time_limit("--time", options["time"])
        if limit is not None:
            request.time_limit_s = limit
    for key, name in (("begin", "begin_at"), ("deadline", "deadline_at")):
        if key in options:
            from dlsched.client.submission.moments import moment  # noqa: PLC0415

            setattr(request, name, moment(_word(key), options[key], now=caller.now))
    if request.HasField("deadline_at") and request.deadline_at <= caller.now.timestamp():
        raise BadInput(f"--deadline: {shorten(options['deadline'])} has passed")
    if "expected" in options:
        request.expected_s = duration("--expected", options["expected"])
    if "grace" in options:
        request.grace_s = duration("--grace", options["grace"], bare="seconds")
    if "signal" in options:
        from dlsched.client.submission.warning_signals import parse_warning  # noqa: PLC0415

        warning = parse_warning("--signal", options["signal"])
        request.warn_signal, request.warn_before_s = warning.number, warning.before_s
        if warning.batch_only:
            notes.append("--signal: B: is not kept apart; the whole job gets the signal")


def _set_handling(request: control_pb2.JobRequest, options: Mapping[str, str]) -> None:
    request.exclusive = _on(options, "exclusive")
    request.held = _on(options, "hold")
    request.no_requeue = options.get("requeue") == "no"
    request.adaptive = _on(options, "adaptive")
    request.fixed_batch = _on(options, "fixed_batch")
    request.no_slurm_environment = _on(options, "no_slurm_env")
    request.open_ended = _on(options, "open_ended")
    for key, field_name in (("nodelist", "only_nodes"), ("exclude", "not_nodes")):
        if key in options:
            from dlsched.client.submission.hosts import expand  # noqa: PLC0415

            getattr(request, field_name).extend(expand(_word(key), options[key]))
    both = set(request.only_nodes) & set(request.not_nodes)
    if both:
        raise BadInput(f"--exclude: {min(both)} is also in --nodelist")
    if "array" in options:
        from dlsched.client.submission.task_sets import parse_tasks  # noqa: PLC0415

        request.array = str(parse_tasks("--array", options["array"]))
    if "dependency" in options:
        from dlsched.client.submission.changes import wire_dependencies  # noqa: PLC0415

        request.dependencies.extend(wire_dependencies("--dependency", options["dependency"]))
    if _choice(options, "kill_on_invalid_dep", ("yes", "no"), "yes") == "no":
        request.broken_dependency = control_pb2.BROKEN_KEEP
    for key, (field_name, words) in _MODES.items():
        if key in options:
            setattr(request, field_name, words[_choice(options, key, tuple(words), "")])


def _set_numbers(request: control_pb2.JobRequest, options: Mapping[str, str]) -> None:
    if "retries" in options:
        request.retries = whole_number("--retries", options["retries"], most=1_000_000)
    for key in ("batch_size", "total_iterations", "weight"):
        if key in options:
            setattr(request, key, _number(_word(key), options[key], least=0.0))
    if "priority" in options:
        request.priority = _number("--priority", options["priority"])
    elif "nice" in options:
        request.priority = -_number("--nice", options["nice"])
    for pair in options.get("set", "").split("\n") if options.get("set") else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise BadInput(f"--set: {shorten(pair)!r} is not KEY=VALUE")
        request.extra[check_text("--set", key, longest=64)] = check_text("--set", value, empty=True)


def _number(what: str, text: str, *, least: float = -_LARGEST) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not least <= number <= _LARGEST:
        raise BadInput(f"{what}: {shorten(text)!r} is not a number")
    return number


def _choice(options: Mapping[str, str], key: str, known: tuple[str, ...], default: str) -> str:
    word = options.get(key, default).strip().lower()
    if word not in known:
        raise BadInput(f"{_word(key)}: {shorten(word)!r} is not known; known: {', '.join(known)}")
    return word


def _notify(text: str) -> str:
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in words:
        if word not in _NOTIFY:
            known = ", ".join(sorted(_NOTIFY))
            raise BadInput(f"--notify: {shorten(word)!r} is not known; known: {known}")
    return "" if "none" in words else ",".join(dict.fromkeys(words))


def _of_tasks(wanted: Resources, *, slurm: bool) -> dict[str, str]:
    """What `dlsched run` and scripts want to know of the tasks asked for."""
    told = {
        "NTASKS": wanted.ntasks,
        "NTASKS_PER_NODE": wanted.ntasks_per_node,
        "CPUS_PER_TASK": wanted.cpus_per_task,
    }
    prefixes = ("DLSCHED_", "SLURM_") if slurm else ("DLSCHED_",)
    return {
        f"{prefix}{name}": str(count)
        for prefix in prefixes
        for name, count in told.items()
        if count is not None
    }
