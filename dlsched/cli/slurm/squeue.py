"""`squeue`: jobs of all users unless said otherwise.

They wait or run. As in Slurm, states of ended jobs (`-t all`, `-t CD,F`) list those that have ended
within the last minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dlsched.cli.jobs.job_columns import ENDED_STATES, OfFields, Row, lines_of, rows_of
from dlsched.cli.jobs.job_filter import FilterOptions, job_filter, states_of
from dlsched.cli.output.terminal import terminal
from dlsched.cli.slurm.arguments import Arguments, given_by, joined, own_name
from dlsched.cli.slurm.formats import Part, all_of, by_letters, by_names, lines, of_each
from dlsched.cli.slurm.queue_cells import LETTERS, NAMES, OF_DETAILS, DetailedRow, nodes_of
from dlsched.cli.slurm.squeue_steps import LETTERS_OF_STEPS, USUAL_OF_STEPS, running_steps
from dlsched.client.daemon_client import Client, filter_of
from dlsched.client.job_ids import job_names
from dlsched.core.errors import BadInput, DlschedError

if TYPE_CHECKING:
    from dlsched.client.job_records import Queue
    from dlsched.rpc.v1.control_pb2 import Filter

USUAL = "%i %P %j %u %t %M %D %R"
LONG = "%i %P %j %u %T %M %l %D %R"
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
    option("-a", "--all", flag=True)
    option("-i", "--iterate", help="repeat every so many seconds")
    return found


def squeue(words: Sequence[str]) -> int:
    """List jobs."""
    given = _parser().read(words)
    parts = _parts(given)
    named = joined(given.states) or (["PENDING"] if given.start else [])
    states = _states(named)
    with_ended = bool(named) and (not states or not states.isdisjoint(ENDED_STATES))
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
    usual = ["S"] if given.start else given_by("SQUEUE_SORT")
    order = _order(joined(given.sort or usual))
    classes = set(joined(given.qos))
    is_usual, width = not (given.format or given_by("SQUEUE_FORMAT")), terminal().width
    detailed = any(part.cell is NAMES[name] for part in parts for name in OF_DETAILS)
    made = [*(part.cell.text for part in parts if part.cell), *(key for key, _ in order)]
    fields = [name for each in made if isinstance(each, OfFields) for name in each.fields]
    of_fields = all(isinstance(each, OfFields) for each in made)
    one_by_one = not of_fields or with_ended or classes or order or given.steps is not None

    ids = job_names(given.jobs or ())

    def rows_of_all(found: Queue, cluster: Client) -> list[Row]:
        rows = list(rows_of(found.rows(), predicted=given.start))
        if with_ended:
            rows = _and_ended(rows, cluster, wanted)
        if classes:
            rows = [row for row in rows if row.job.priority_class in classes]
        if given.steps is not None:
            rows = list(running_steps(rows, joined([given.steps])))
        if detailed:
            rows = _with_details(cluster, rows)
        for key, backwards in reversed(order):
            rows.sort(key=key, reverse=backwards)
        return rows

    def once(cluster: Client) -> None:
        is_brief = of_fields and "asked" not in fields
        found = cluster.queue(wanted, predict=given.start, unfold=given.array, brief=is_brief)
        if one_by_one:
            of_rows, count = of_each(rows_of_all(found, cluster))
        else:
            of_rows, count = lines_of(found, predicted=given.start), found.lines.count
        if len(ids) == 1 and not count and not _is_known(cluster, given.jobs):
            raise DlschedError(f"{NOT_KNOWN}: {given.jobs[-1]} never was, or ended long ago")
        if given.long and not given.noheader:
            print(time.strftime("%a %b %d %H:%M:%S %Y"))
        for line in lines(
            parts,
            of_rows,
            count,
            header=not given.noheader,
            padded=is_usual,
            within=width if is_usual else None,
        ):
            print(line, flush=bool(given.iterate))

    with Client() as cluster:
        once(cluster)
        while given.iterate:
            time.sleep(_pause(given.iterate[-1]))
            once(cluster)
    return 0


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
    if given.steps is not None:
        return by_letters((given.format or [USUAL_OF_STEPS])[-1], LETTERS_OF_STEPS)
    if given.Format:
        return by_names(",".join(given.Format), NAMES, "-O", usual=20)
    chosen = given.format or ([] if given.start or given.long else given_by("SQUEUE_FORMAT"))
    if chosen and chosen[-1] == "%all":
        return all_of(NAMES[name] for name in NAMES if name not in OF_DETAILS)
    if chosen:
        return by_letters(chosen[-1], LETTERS)
    return by_letters(START if given.start else LONG if given.long else USUAL, LETTERS)


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


def _pause(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not found > 0:
        raise BadInput(f"-i: {text!r} is not a number of seconds above 0")
    return found
