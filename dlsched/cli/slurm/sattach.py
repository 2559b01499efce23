"""`sattach`: where the tasks of a running step are, and the output of its job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlsched.cli.jobs.job_filter import job_filter
from dlsched.cli.slurm.arguments import Arguments
from dlsched.cli.slurm.queue_cells import tasks_of
from dlsched.cli.slurm.sacct_steps import Line, with_steps
from dlsched.client.daemon_client import Client
from dlsched.core.errors import BadInput, DlschedError
from dlsched.host_lists import fold

_NOT_HERE = {
    "label": "a line does not say its task: start the step with -l",
    "output_filter": "a line does not say its task",
    "error_filter": "errors are in the output, or a file of their own",
    "input_filter": "tasks read nothing from here",
    "pty": "use dlsched attach, a shell inside the job",
}


def sattach(words: Sequence[str]) -> int:
    """Print what the job of a running step writes, until it ends; or the layout of the step."""
    parser = Arguments("sattach", "JOB.STEP: what the job of a running step writes, until it ends.")
    parser.option("--layout", flag=True, help="print where its tasks are, and no output")
    parser.option("--output-filter")
    parser.option("--error-filter")
    parser.option("--input-filter")
    parser.option("-l", "--label", flag=True)
    parser.option("--pty", flag=True)
    parser.option("-Q", "--quiet", flag=True)
    given, rest = parser.read_around(words)
    if len(rest) != 1 or not all(rest[0].partition(".")[::2]):
        raise BadInput("which step? JOB.STEP: 7.0, 7.batch")
    for option, why in _NOT_HERE.items():
        if getattr(given, option):
            raise BadInput(f"--{option.replace('_', '-')}: not supported: {why}")
    with Client() as cluster:
        step = _step(cluster, rest[0])
        if given.layout:
            print("\n".join(_layout(step)))
            return 0
        from dlsched.cli.jobs.logs import print_output  # noqa: PLC0415

        print_output(cluster.follow(step.job.job_id))
    return 0


def _step(cluster: Client, word: str) -> Line:
    """The running step that a word names.

    Raises:
        DlschedError: there is none.
    """
    job, _, wanted = word.partition(".")
    for detail in cluster.show(job_filter([job])):
        for line in with_steps(detail.job):
            if line.step == wanted and line.job.state == "RUNNING":
                return line
    raise DlschedError(f"{word}: no such step runs")


def _layout(step: Line) -> Iterator[str]:
    """The tasks of each node, in blocks."""
    job = step.job
    asked = {"ntasks": 1} if step.step in ("batch", "interactive") else job.asked
    tasks = int(tasks_of(asked, job.nodes, job.gang))
    yield f"Job step layout:\n\t{tasks} tasks, {len(job.nodes)} nodes ({fold(job.nodes)})\n"
    first = 0
    for place, node in enumerate(job.nodes):
        count = tasks // len(job.nodes) + (place < tasks % len(job.nodes))
        ids = "".join(f"{task} " for task in range(first, first + count))
        first += count
        yield f"\tNode {place} ({node}), {count} task(s): {ids}"
