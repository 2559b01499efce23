"""`sstat`: the steps of running jobs, with sacct's names; what is not measured yet is empty."""

from __future__ import annotations

from collections.abc import Sequence

from dlsched.cli.jobs.job_filter import ids_of, job_filter
from dlsched.cli.slurm.arguments import Arguments, joined
from dlsched.cli.slurm.formats import by_names, lines, of_each
from dlsched.cli.slurm.sacct_cells import CELLS
from dlsched.cli.slurm.sacct_steps import with_steps
from dlsched.client.daemon_client import Client

USUAL = "JobID,MaxVMSize,MaxRSS,AveRSS,MinCPU,AveCPU,NTasks"


def sstat(words: Sequence[str]) -> int:
    """List the steps that run: without `-a` the first call of `srun`, else the script."""
    parser = Arguments("sstat", "Steps of running jobs; their use is known once they have ended.")
    option = parser.option
    option("-j", "--jobs", help="these: 7, 7.0, 7.batch")
    option("-a", "--allsteps", flag=True, help="all steps of each job")
    option("-o", "--format", "--fields", help=f"names: {USUAL}")
    option("-e", "--helpformat", flag=True, help="print the names of --format")
    option("-n", "--noheader", flag=True, help="without the titles")
    option("-p", "--parsable", flag=True, help="cells end with |")
    option("-P", "--parsable2", flag=True, help="cells are joined by |")
    option("--noconvert", flag=True)
    given = parser.read(words)
    if given.helpformat:
        print("\n".join(CELLS))
        return 0
    parts = by_names(",".join(given.format or [USUAL]), CELLS, "--format")
    named = joined(given.jobs)
    ids = [word.partition(".")[0] for word in named]
    ids_of(ids)
    with Client() as cluster:
        found = [each.job for each in cluster.show(job_filter(ids))]
    rows = []
    for job in found:
        steps = [x for x in with_steps(job) if x.step and x.job.state == "RUNNING"]
        mine = [word.partition(".") for word in named]
        asked = {step for name, _, step in mine if name in (job.shown_id, str(job.job_id))}
        calls = [x for x in steps if x.step.isdecimal()] or steps
        whole = steps if given.allsteps else calls[:1]
        rows += [x for x in steps if x.step in asked] if any(asked) else whole
    separator = "|" if given.parsable or given.parsable2 else None
    shown = lines(
        parts, *of_each(rows), header=not given.noheader, separator=separator, rule=not separator
    )
    for line in shown:
        print(f"{line}|" if given.parsable else line)
    return 0
