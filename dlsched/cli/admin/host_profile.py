"""`dlsched admin profile host`: how fast a training is with how many processors.

Optimistic profiling (Synergy, OSDI 2022): a training runs for a while with each of some numbers of
processors, with all the memory of its node, and says by the job library how fast it is.
"""

from __future__ import annotations

import time
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from dlsched.cli.daemon_options import DaemonOptions
from dlsched.cli.option_groups import option, typed
from dlsched.core.errors import BadInput, DlschedError, plural
from dlsched.record import Record

if TYPE_CHECKING:
    from dlsched.client.daemon_client import Client
    from dlsched.client.job_records import Job

HEADER = "model,cpus_per_gpu,memory_gb_per_gpu,steps_per_s"
LOOK_S = 1.0  # how often a training reports
WARM_UP = 0.25  # part of a measurement that does not count: data are read for the first time
MOST_CPUS = 1_000_000


class Measured(Record, kw_only=False):
    """What is measured, and how."""

    model: str = typed("--model NAME", "What the profile calls the training.", default="")
    cpus: str = typed("--cpus N,N", "Numbers of processors of the whole job.", default="")
    seconds: float = typed(
        "--for S", "How long each number is measured, in seconds.", default=60.0, min=1.0
    )
    gpus: int = typed("--gpus N", "GPUs of the training, on one node.", default=1, min=1)
    wait: float = typed(
        "--wait S", "How long a measurement may wait to begin, in seconds.", default=600.0, min=1.0
    )


def host_command(
    command: Annotated[list[str], typer.Argument(metavar="COMMAND…", help="The training.")],
    output: Annotated[str, option("--output -o FILE", "A file to write; -: stdout.")],
    what: Measured,
    *,
    daemon: DaemonOptions,
) -> None:
    """Measure how fast a training is with how many processors."""
    from dlsched.cli.output.file_output import save  # noqa: PLC0415

    counts = _counts(what.cpus)
    if not what.model:
        raise BadInput("--model: the profile needs the name of the model")
    lines = [HEADER]
    with daemon.client() as cluster:
        for count in counts:
            rate = _measure(cluster, command, what, count)
            typer.echo(f"{plural(count, 'processor')}: {rate:.5g} steps/s", err=True)
            lines.append(f"{what.model},{count / what.gpus!r},,{rate!r}")
    text = "\n".join(lines) + "\n"
    if output == "-":
        typer.echo(text, nl=False)
        return
    save([text.encode()], output)
    typer.echo(f"{output}: {plural(len(counts), 'measurement')}")


def _counts(text: str) -> list[int]:
    """The numbers of processors, ascending.

    Raises:
        BadInput: there are none, or one is no whole number above 0.
    """
    found = set()
    for part in filter(None, (each.strip() for each in text.split(","))):
        if not (part.isascii() and part.isdigit() and 0 < int(part) <= MOST_CPUS):
            raise BadInput(f"--cpus: {part!r} is not a whole number above 0")
        found.add(int(part))
    if not found:
        raise BadInput("--cpus: numbers of processors are needed, for example 1,2,4,8")
    return sorted(found)


def _measure(cluster: Client, command: list[str], what: Measured, cpus: int) -> float:
    """Steps/s of a training with so many processors; its job is cancelled afterwards.

    Raises:
        DlschedError: it does not start in time, or reports no steps.
    """
    from dlsched.client.daemon_client import filter_of  # noqa: PLC0415

    job = cluster.submit(
        command, name=f"profile-{what.model}", gpus=what.gpus, nodes=1, cpus=cpus, model=what.model
    )
    chosen = filter_of([str(job)])

    def now() -> Job:
        return cluster.show(chosen)[0].job

    try:
        began = time.monotonic()
        while (present := now()).state == "PENDING":
            if time.monotonic() - began > what.wait:
                raise DlschedError(f"job {job} has not started: {present.reason}")
            time.sleep(LOOK_S)
        began, rates = time.monotonic(), list[float]()
        while (passed := time.monotonic() - began) < what.seconds:
            present = now()
            if present.state not in ("RUNNING", "STARTING"):
                break
            if passed >= what.seconds * WARM_UP and present.steps_s:
                rates.append(present.steps_s)
            time.sleep(min(LOOK_S, what.seconds - passed))
    finally:
        cluster.act("cancel", chosen)
    if not rates:
        raise DlschedError(
            f"job {job} with {plural(cpus, 'processor')} has reported no steps: does it use the "
            "job library, and are its steps shorter than --for?"
        )
    return median(rates)
