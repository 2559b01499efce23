"""From options and a command to the request that the daemon gets.

The grammar of an option is imported when the option is there: a start is most of what a call costs.
"""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from datetime import datetime

from dlsched.client.submission.containers import check_container
from dlsched.client.submission.exports import exported
from dlsched.client.submission.resources import FROM_RESOURCES, check_resource, resources
from dlsched.client.submission.slurm_variables import OF_STEPS, check_for_steps, slurm_variables
from dlsched.client.submission.texts import check_text, check_words
from dlsched.client.submission.values import read_number, read_value, word_of
from dlsched.core.errors import BadInput, not_known, shorten
from dlsched.jobs.field import Value
from dlsched.record import Record, field
from dlsched.rpc import messages
from dlsched.rpc.job_fields import SENT, put_fields

_RANKED = (messages.LAUNCH_MODE_NODE, messages.LAUNCH_MODE_GPU)
_BY_HAND = {"name", "working_directory", "truncate", "keep_on_broken_dependency"}
_OF_SWEEPS = {"sweep", "sweep_concurrent", "halving"}
_PLAIN = {
    row.options[0].key: row
    for row in SENT
    if row.options and row.name not in {*_BY_HAND, *FROM_RESOURCES}
}


class Caller(Record):
    """Where and when the submission is made."""

    directory: str
    host: str
    variables: Mapping[str, str] = field(repr=False)
    now: datetime  # with its zone
    umask: int = 0o022  # of the files that the job makes
    # by choice, so that many submissions of one call share them
    _exports: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict, repr=False)

    def exported(self, choice: str, more: Mapping[str, str]) -> dict[str, str]:
        """The variables that `--export` chooses, and some more; not to be changed."""
        key = (choice, repr(more))
        found = self._exports.get(key)
        if found is None:
            chosen = exported("--export", choice, self.variables)
            found = self._exports[key] = {**more, **chosen}
        return found


class Command(Record):
    """What is to run: a script with arguments, or a command alone."""

    argv: tuple[str, ...] = ()
    script: bytes = b""
    name: str = ""  # where the user gives none
    is_line: bool = False  # the script is a line of `--wrap`
    path: str = ""  # of the script, as the user gave it; empty: from standard input
    truncates: bool = False  # its output files begin anew; elements of an array have one together

    @property
    def words(self) -> tuple[str, ...]:
        """The command as the user gave it; a line of `--wrap` is one word."""
        if self.is_line:
            return (self.script.decode("utf-8", "replace").split("\n", 2)[2].rstrip("\n"),)
        return (self.path or self.name, *self.argv) if self.script else self.argv


class Submission(Record):
    """A request, and what the client itself is to do."""

    request: messages.JobRequest
    environment: Mapping[str, str] = field(repr=False)  # not yet in the request
    notes: tuple[str, ...] = ()
    command: Command = Command()
    wait: bool = False
    parsable: bool = False


def compose(options: Mapping[str, str], command: Command, caller: Caller) -> Submission:
    """Build one job, or one array, from the merged texts of options by key.

    Raises:
        BadInput: any option is malformed, or some contradict each other.
    """
    notes: list[str] = []
    wanted = resources(options)
    values: dict[str, Value] = {**wanted.fields(), **_plain_values(options, caller)}
    values["name"] = check_text("--name", options.get("name") or command.name, longest=255)
    values["working_directory"] = _directory(options, caller)
    values["submit_host"], values["umask"] = caller.host, caller.umask
    if command.path:
        values["script_path"] = os.path.join(caller.directory, command.path)
    usual = "truncate" if command.truncates and "array" not in options else "append"
    mode = _one_of({"open_mode": usual, **options}, "open_mode", ("append", "truncate"))
    values["truncate"] = mode == "truncate"
    if _one_of(options, "kill_on_invalid_dep", ("yes", "no")) == "no":
        values["keep_on_broken_dependency"] = True
    if "priority" not in options and "nice" in options:
        values["priority"] = -read_number("--nice", options["nice"])
    if "signal" in options:
        from dlsched.client.submission.warning_signals import parse_warning  # noqa: PLC0415

        warning = parse_warning("--signal", options["signal"])
        values |= {"warn_signal": warning.number, "warn_before_s": warning.before_s}
        values["warn_script_only"] = warning.script_only
        values["warn_at_preemption"] = warning.at_preemption
        if warning.overlaps_reservations:
            notes.append("--signal: R: has no effect; there are no reservations to overlap with")
    for key in sorted(OF_STEPS & options.keys()):
        if idle := check_for_steps(key, word_of(key), options[key]):
            notes.append(f"without effect here: {idle}")
    check_container(options.get("container", ""), options.get("container_mounts", ""))
    request = messages.JobRequest(
        argv=check_words("arguments", command.argv), script=command.script
    )
    put_fields(request, values)
    _set_lists(request, options)
    _refuse_contradictions(request, options, caller)
    if not _OF_SWEEPS.isdisjoint(options):
        from dlsched.client.submission.sweeps import put_sweep  # noqa: PLC0415

        notes += put_sweep(request, options, caller.directory, line=command.is_line)
    if "tasks" in options or "tokens" in options:
        from dlsched.client.submission.short_tasks import put_short_tasks  # noqa: PLC0415

        put_short_tasks(request, options, caller.directory)
    if request.sla:
        from dlsched.core.rewards import RewardCurve  # noqa: PLC0415

        if RewardCurve.of_text(request.sla).rises:
            notes.append("--sla: the curve rises: ending later is worth more there")
    return Submission(
        request=request,
        environment=caller.exported(options.get("export", "ALL"), slurm_variables(options)),
        notes=tuple(notes),
        command=command,
        wait=options.get("wait") == "yes",
        parsable=options.get("parsable") == "yes",
    )


def check_option(key: str, what: str, text: str, now: datetime) -> None:
    """Check the text of one option by itself; `what` names it in the error.

    Raises:
        BadInput: it is malformed.
    """
    if key in _PLAIN:
        read_value(_PLAIN[key], what, text, now)
    elif key == "nice":
        read_number(what, text)
    elif key == "array":
        from dlsched.client.submission.texts import task_set  # noqa: PLC0415

        task_set(what, text)
    elif key == "dependency":
        from dlsched.client.submission.changes import wire_dependencies  # noqa: PLC0415

        wire_dependencies(what, text)
    elif key == "signal":
        from dlsched.client.submission.warning_signals import parse_warning  # noqa: PLC0415

        parse_warning(what, text)
    elif key in OF_STEPS:
        check_for_steps(key, what, text)
    else:
        check_resource(key, what, text)


def _plain_values(options: Mapping[str, str], caller: Caller) -> dict[str, Value]:
    """The fields that one option alone gives, by name."""
    return {
        row.name: read_value(row, word_of(key), options[key], caller.now)
        for key, row in _PLAIN.items()
        if key in options
    }


def _directory(options: Mapping[str, str], caller: Caller) -> str:
    chosen = os.path.join(caller.directory, os.path.expanduser(options.get("chdir", "")))
    return check_text("--chdir", os.path.normpath(chosen), longest=4096)


def _one_of(options: Mapping[str, str], key: str, known: tuple[str, ...]) -> str:
    """A word of a list; the first one where the option is not given."""
    word = options.get(key, known[0]).strip().lower()
    if word not in known:
        raise not_known(f"{word_of(key)}:", word, known)
    return word


def _set_lists(request: messages.JobRequest, options: Mapping[str, str]) -> None:
    """What is more than one value: arrays, dependencies and further columns."""
    if "array" in options:
        from dlsched.client.submission.texts import task_set  # noqa: PLC0415

        request.array = str(task_set("--array", options["array"]))
    if "dependency" in options:
        from dlsched.client.submission.changes import wire_dependencies  # noqa: PLC0415

        request.dependencies.extend(wire_dependencies("--dependency", options["dependency"]))
    for pair in options.get("set", "").split("\n") if options.get("set") else ():
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            raise BadInput(f"--set: {shorten(pair)!r} is not KEY=VALUE")
        request.extra[check_text("--set", key, longest=64)] = check_text("--set", value, empty=True)


def _refuse_kind_alone(request: messages.JobRequest, options: Mapping[str, str]) -> None:
    """Refuse a kind of a deadline that the job does not have."""
    kind = options.get("deadline_kind", "best-effort").strip().lower()
    if request.HasField("deadline_at") or kind == "best-effort":
        return
    if not request.sla:
        raise BadInput("--deadline-kind: only with --deadline or --sla")
    from dlsched.core.rewards import RewardCurve  # noqa: PLC0415

    if RewardCurve.of_text(request.sla).deadline is None:
        raise BadInput("--deadline-kind: only with --deadline or an --sla with a deadline")


def _refuse_contradictions(
    request: messages.JobRequest, options: Mapping[str, str], caller: Caller
) -> None:
    if options.get("input", "/dev/null") not in {"/dev/null", "none"}:
        raise BadInput(
            f"--input: {shorten(options['input'])!r}: only /dev/null; redirect in the script"
        )
    if request.HasField("deadline_at"):
        from dlsched.client.submission.moments import refuse_past  # noqa: PLC0415

        refuse_past("--deadline", options["deadline"], request.deadline_at, now=caller.now)
    _refuse_kind_alone(request, options)
    if request.resume_from:
        from dlsched.client.job_ids import job_name  # noqa: PLC0415

        name = job_name(request.resume_from, "--resume-from")
        if len(name.tasks) > 1:
            raise BadInput(f"--resume-from: {shorten(request.resume_from)!r} names several jobs")
        request.resume_from = "_".join(map(str, (name.job, *name.tasks)))
    if request.requeue_on_timeout and request.no_requeue:
        raise BadInput("--requeue-on-timeout: not together with --no-requeue")
    if request.label == messages.LABEL_YES and request.mode not in _RANKED:
        raise BadInput("--label: only with --launch node or gpu; in a script: dlsched run --label")
    both = set(request.only_nodes) & set(request.not_nodes)
    if both:
        raise BadInput(f"--exclude: {min(both)} is also in --nodelist")
