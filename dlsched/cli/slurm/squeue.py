"""`squeue`: jobs of all users unless said otherwise.

They wait or run. As in Slurm, states of ended jobs (`-t all`, `-t CD,F`) list those that have ended
within the last minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dlsched.cli.jobs.job_columns import ENDED_STATES, STATE_CODES, OfFields, Row, lines_of, rows_of
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter, states_of
from dlsched.cli.output.terminal import terminal
from dlsched.cli.slurm.arguments import Arguments, given_by, joined, own_name, seconds_between
from dlsched.cli.slurm.formats import Part, all_of, by_fields, by_letters, lines, of_each
from dlsched.cli.slurm.quantities import nodes_of
from dlsched.cli.slurm.queue_cells import (
    ALIASES,
    LETTERS,
    NAMES,
    NOT_CONVERTED,
    OF_DETAILS,
    DetailedRow,
)
from dlsched.cli.slurm.squeue_steps import LETTERS_OF_STEPS, USUAL_OF_STEPS, running_steps
from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_ids import job_names
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.client.job_records import Job, Queue
    from dlsched.rpc.v1.control_pb2 import Filter

USUAL = "%i %P %j %u %t %M %D %R"
LONG = "%i %P %j %u %T %M %l %D %R"
STATES = "%i %T"
START = "%i %P %j %u %t %S %D %Y %R"
ENDED_WITHIN_S = 300.0  # Slurm's MinJobAge, as it is without a setting
MOST_ENDED = 10_000  # the last ones; as many jobs as Slurm keeps (MaxJobCount)
NOT_KNOWN = "slurm_load_jobs error: Invalid job id specified"  # scripts look for it
_NOT_HERE = {  # states of Slurm that no job has here
    "BF": "BOOT_FAIL",
    "RD": "RESV_DEL_HOLD",
    "RF": "REQUEUE_FED",
    "RH": "REQUEUE_HOLD",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "SE": "SPECIAL_EXIT",
    "SI": "SIGNALING",
    "SO": "STAGE_OUT",
    "ST": "STOPPED",
}


def _parser() -> Arguments:
    found = Arguments(
        "squeue", "List jobs that wait or run and, by -t, that ended in the last 5 minutes."
    )
    option = found.option
    option("-u", "--user", "--users", help="of these users")
    option("--me", flag=True, help="your own")
    option("-t", "--states", "--state", help="PENDING or PD, RUNNING or R, COMPLETED or CD, …; all")
    option("-j", "--jobs", "--job", help="these")
    option("-n", "--name", "--names", help="of these names")
    option("-p", "--partition", "--partitions", help="in these partitions")
    option("-A", "--account", "--accounts", help="of these accounts")
    option("-w", "--nodelist", "--nodes", help="on these nodes")
    option("-q", "--qos", help="of these classes")
    option("-o", "--format", help="letters: '%%.18i %%j %%T'; SQUEUE_FORMAT without it")
    option("-O", "--Format", help="names: JobArrayID:20,State")
    option("-S", "--sort", help="letters, + or - before them: -S -t,i")
    option("-h", "--noheader", flag=True, help="without the titles")
    option("-l", "--long", flag=True, help="with states as words and limits")
    option("-r", "--array", flag=True, help="a line for each array element")
    option("--start", flag=True, help="predicted starts")
    found.add_argument(
        "-s", "--steps", nargs="?", const="", help="steps that run: all, or 7.0,7.batch"
    )
    option("-L", "--licenses", help="with these licenses: there are none")
    option("-R", "--reservation", help="in these reservations")
    option("--notme", flag=True, help="of others than you")
    option("--only-job-state", flag=True, help="ids and states alone")
    option("--noconvert", flag=True, help="memory in M, as it was asked for")
    option("--helpFormat", "--helpformat", flag=True, help="print the names of -O")
    option("--helpstate", flag=True, help="print the names of -t")
    found.as_json()
    for words in (("-a", "--all"), ("-P", "--priority"), ("--hide",), ("--local",)):
        option(*words, flag=True)
    for words in (("--federation",), ("--sibling", "--sib"), ("--expand-patterns",)):
        option(*words, flag=True)
    option("-i", "--iterate", help="repeat every so many seconds")
    return found


def squeue(words: Sequence[str]) -> int:
    """List jobs."""
    given = _parser().read(words)
    if given.helpFormat or given.helpstate:
        return _print_names(ALIASES if given.helpFormat else STATE_CODES)
    parts = _parts(given)
    named = joined(given.states) or (["PENDING"] if given.start else [])
    states = _states(named)
    with_ended = bool(named) and (not states or not states.isdisjoint(ENDED_STATES))
    wanted = _wanted(given, states)
    order = _order(joined(given.sort or (["S"] if given.start else given_by("SQUEUE_SORT"))))
    kept = _kept(given)
    is_usual = not (given.format or given.Format or given_by("SQUEUE_FORMAT"))
    of_details = [NAMES[name] for name in OF_DETAILS]
    detailed = given.json or any(part.cell in of_details for part in parts)
    made = [*(part.cell.text for part in parts if part.cell), *(key for key, _ in order)]
    fields = [name for each in made if isinstance(each, OfFields) for name in each.fields]
    of_fields = all(isinstance(each, OfFields) for each in made)
    one_by_one = detailed or kept or not of_fields or with_ended or order or given.steps is not None

    ids = job_names(given.jobs or ())

    def rows_of_all(found: Queue, cluster: Client) -> list[Row]:
        rows = list(rows_of(found.rows(), predicted=given.start))
        if with_ended:
            rows = _and_ended(rows, cluster, wanted)
        if kept:
            rows = [row for row in rows if kept(row.job)]
        if given.steps is not None:
            rows = list(running_steps(rows, joined([given.steps])))
        if detailed:
            rows = _with_details(cluster, rows)
        for key, backwards in reversed(order):
            rows.sort(key=key, reverse=backwards)
        return rows

    def once(cluster: Client) -> None:
        is_brief = of_fields and "asked" not in fields and not kept
        found = cluster.queue(wanted, predict=given.start, unfold=given.array, brief=is_brief)
        rows = rows_of_all(found, cluster) if one_by_one else []
        if one_by_one:
            of_rows, count = of_each(rows)
        else:
            of_rows, count = lines_of(found, predicted=given.start), found.lines.count
        if len(ids) == 1 and not count and not _is_known(cluster, given.jobs):
            raise DlschedError(f"{NOT_KNOWN}: {given.jobs[-1]} never was, or ended long ago")
        if given.json:
            _print_json(rows)
            return
        if given.long and not given.noheader:
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        for line in lines(
            parts,
            of_rows,
            count,
            header=not given.noheader,
            padded=is_usual,
            within=terminal().width if is_usual else None,
        ):
            print(line, flush=bool(given.iterate))

    pause = seconds_between(given.iterate)
    with Client() as cluster:
        once(cluster)
        while pause:
            time.sleep(pause)
            once(cluster)
    return 0


def _print_names(names: Iterable[str]) -> int:
    print("\n".join(names))
    return 0


def _print_json(rows: Sequence[Row]) -> None:
    from dlsched.cli.slurm.shown.jobs_json import print_jobs  # noqa: PLC0415

    print_jobs(rows)


def _wanted(given: Any, states: set[str]) -> Filter:
    """What the daemon is asked for."""
    users = joined(given.user) + ([own_name()] if given.me else [])
    wanted = job_filter(
        given.jobs,
        FilterOptions(
            users=users or None,
            partitions=joined(given.partition) or None,
            vcs=joined(given.account) or None,
            nodes=given.nodelist,
            names=joined(given.name) or None,
        ),
        all_users=not users,
    )
    wanted.states.extend(sorted(states))
    return wanted


def _kept(given: Any) -> Callable[[Job], bool] | None:
    """Whether a job is among those meant, by what the daemon's filter does not know; None: all."""
    classes, reservations = set(joined(given.qos)), set(joined(given.reservation))
    not_of = own_name() if given.notme else None
    if not (classes or reservations or given.licenses or given.notme):
        return None
    return lambda job: (
        (not classes or job.priority_class in classes)
        and (not reservations or job.asked.get("reservation") in reservations)
        and not given.licenses
        and job.user != not_of
    )


def _is_known(cluster: Client, jobs: Sequence[str]) -> bool:
    """Whether there is such a job that waits, runs, or has ended in the last minutes."""
    wanted = job_filter(jobs, all_users=True)
    since = time.time() - ENDED_WITHIN_S
    alive = cluster.queue(wanted, unfold=True).rows()
    return any(True for _ in alive) or bool(list(cluster.history(wanted, since=since, limit=1)))


def _with_details(cluster: Client, rows: Sequence[Row]) -> list[Row]:
    ids = [str(row.job.job_id) for row in rows]
    known = {each.job.job_id: each for each in cluster.show(filter_of(ids))} if ids else {}
    return [
        DetailedRow(
            row.job,
            row.now,
            row.tasks,
            row.count,
            row.predicted,
            detail=known.get(row.job.job_id),
        )
        for row in rows
    ]


def _parts(given: Any) -> list[Part[Row]]:
    parts = _said_parts(given)
    if not given.noconvert:
        return parts
    return [
        replace(part, cell=NOT_CONVERTED.get(part.cell.title, part.cell)) if part.cell else part
        for part in parts
    ]


def _said_parts(given: Any) -> list[Part[Row]]:
    if given.steps is not None:
        if given.json or given.Format:
            raise BadInput("-s: takes -o, not -O or --json: these list jobs")
        return by_letters((given.format or [USUAL_OF_STEPS])[-1], LETTERS_OF_STEPS)
    if given.Format:
        return by_fields(",".join(given.Format), ALIASES)
    chosen = given.format or ([] if given.start or given.long else given_by("SQUEUE_FORMAT"))
    if chosen and chosen[-1] == "%all":
        return all_of(NAMES[name] for name in NAMES if name not in OF_DETAILS)
    if chosen:
        return by_letters(chosen[-1], LETTERS)
    usual = STATES if given.only_job_state else LONG if given.long else USUAL
    return by_letters(START if given.start else usual, LETTERS)


def _states(words: Sequence[str]) -> set[str]:
    """The named states; none: all."""
    of_slurm = {"CONFIGURING": "STARTING", **_NOT_HERE}
    named = {of_slurm.get(word.upper(), word.upper()) for word in words}
    not_here = named.intersection(_NOT_HERE.values())
    found = set(states_of(sorted(named - not_here - {"ALL"}), "-t"))
    if "RUNNING" in found:
        found.add("STARTING")
    return set() if "ALL" in named else found | not_here


def _and_ended(rows: Sequence[Row], cluster: Client, wanted: Filter) -> list[Row]:
    """Put jobs that ended lately behind the rows; one that has ended meanwhile is there only."""
    now = time.time()
    since = now - ENDED_WITHIN_S
    ended = cluster.history(wanted, since=since, limit=MOST_ENDED)
    found = {job.job_id: Row(job, now) for job in ended}
    return [row for row in rows if row.tasks or row.job.job_id not in found] + [*found.values()]


def _order(keys: Sequence[str]) -> list[tuple[Callable[[Row], Any], bool]]:
    found: list[tuple[Callable[[Row], Any], bool]] = []
    for word in keys:
        letter = word.lstrip("+-")
        if letter not in LETTERS:
            raise BadInput(f"-S: {word!r} is not a letter of a format ({' '.join(LETTERS)})")
        found.append((_sort_key(letter), word.startswith("-")))
    return found


def _sort_key(letter: str) -> Callable[[Row], Any]:
    numbers: dict[str, OfFields[float]] = {
        "i": OfFields("job_id", int),
        "A": OfFields("job_id", int),
        "M": OfFields("run_s", _or_zero),
        "D": OfFields("nodes gang", nodes_of),
        "p": OfFields("priority", _or_zero),
        "Q": OfFields("priority", _or_zero),
        "V": OfFields("submitted_at", _or_zero),
        "S": OfFields("started_at predicted_start_at", lambda *of: of[0] or of[1] or 1e18),
    }
    return numbers.get(letter, LETTERS[letter].text)


def _or_zero(value: float | None) -> float:
    return value or 0.0
