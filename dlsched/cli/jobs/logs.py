"""`dlsched logs`: the output of a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.jobs.job_filter import IdArgument
from dlsched.cli.option_groups import option
from dlsched.core.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from dlsched.client.daemon_client import Client

_INTERRUPTED = 130


def logs_command(
    job: IdArgument,
    follow: Annotated[bool, option("--follow -f", "Continue while the job writes.")] = False,
    lines: Annotated[int, option("--lines -n N", "Only the last N lines; -1: all.", min=-1)] = -1,
    run: Annotated[int | None, option("--run K", "Of run K. [default: the last]", min=1)] = None,
    rank: Annotated[
        int | None, option("--rank R", "Only what this rank has written.", min=0)
    ] = None,
    node: Annotated[
        str, option("--node NAME", "The file on this node. [default: the rank's, else the first]")
    ] = "",
    stderr: Annotated[bool, option("--stderr", "Standard error, if -e gave it a file.")] = False,
    raw: Annotated[
        bool, option("--raw", "Colours and other control sequences as they are, on a terminal too.")
    ] = False,
    *,
    daemon: DaemonOptions,
) -> None:
    """Show a job's output, from any machine."""
    with daemon.client() as cluster:
        number = one_job(cluster, job)
        wanted: dict[str, Any] = {"run": run, "rank": rank, "node": node.lower(), "error": stderr}
        wanted["tail_lines"] = lines
        chunks = (
            cluster.follow(number, on_lost=_say_lost, **wanted)
            if follow
            else cluster.logs(number, **wanted)
        )
        try:
            print_output(chunks if raw or not sys.stdout.isatty() else visible(chunks))
        except KeyboardInterrupt:
            raise SystemExit(_INTERRUPTED) from None


def follow_to_the_end(cluster: Client, job: int) -> None:
    """Print the output of a job from its first byte until the job ends.

    If there is no output, this is said and is no failure: the job itself continues.
    """
    from dlsched.client.errors import RequestRefused  # noqa: PLC0415

    try:
        print_output(cluster.follow(job, on_lost=_say_lost))
    except RequestRefused as error:
        print(f"dlsched: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"dlsched: no longer following; job {job} continues", file=sys.stderr)
        raise SystemExit(_INTERRUPTED) from None


def visible(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Write control sequences of an output as text, for a terminal, which would act upon them.

    Line breaks, tabs and the carriage returns of progress bars stay. Bytes that are not UTF-8 are
    written as numbers: some terminals act upon them too.
    """
    from codecs import getincrementaldecoder  # noqa: PLC0415  # only for terminals
    from itertools import chain  # noqa: PLC0415

    from dlsched.cli.output.terminal import shown  # noqa: PLC0415

    decoder = getincrementaldecoder("utf-8")("backslashreplace")
    encoding = sys.stdout.encoding or "utf-8"
    for chunk in chain(chunks, [b""]):
        text = decoder.decode(chunk, final=not chunk)
        yield shown(text, kept="\n\t\r").encode(encoding, "backslashreplace")


def _say_lost(why: str) -> None:
    print(f"dlsched: {why}; trying again", file=sys.stderr)


def one_job(cluster: Client, job: str) -> int:
    """Return the id of the one job that a word names: 7, or an element 7_3.

    Raises:
        BadInput: it names none, or several.
        NotFound: there is no such element.
    """
    from dlsched.client.job_ids import job_name  # noqa: PLC0415

    name = job_name(job)
    if len(name.tasks) > 1:
        raise BadInput(f"{job}: name one element ({name.job}_{name.tasks[0]})")
    return name.job if not name.tasks else _element(cluster, name.job, name.tasks[0])


def _element(cluster: Client, array: int, task: int) -> int:
    """Return the job id of an array element."""
    from dlsched.client.daemon_client import filter_of  # noqa: PLC0415
    from dlsched.client.errors import NotFound  # noqa: PLC0415
    from dlsched.client.job_ids import JobName  # noqa: PLC0415

    found = cluster.show(filter_of([JobName(job=array, tasks=(task,))]))
    if not found:
        raise NotFound(f"job {array}_{task}: not known")
    return found[0].job.job_id


def print_output(chunks: Iterable[bytes]) -> None:
    """Print bytes unchanged, as `cat` does."""
    out = sys.stdout.buffer
    for chunk in chunks:
        out.write(chunk)
        out.flush()
