"""`sbcast`, inside a job: a file is copied to each of its nodes, by a step of one task on each."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dlsched.cli.slurm.arguments import Arguments
from dlsched.core.errors import BadInput, DlschedError

# its arguments: the file, its mode, whether it replaces one; the file is whole or not there. In a
# folder that others write to, too, they read nothing before it has its mode, and no name of theirs
# is written through.
_RECEIVE = """
set -eu
made=$(mktemp -- "$1.sbcast.XXXXXXXXXX")
trap 'rm -f -- "$made"' EXIT
cat >"$made"
chmod -- "$2" "$made"
if [ "$3" = yes ]; then mv -fT -- "$made" "$1"
elif ! ln -T -- "$made" "$1" 2>/dev/null; then
    echo "sbcast: error: $1: is there already; -f replaces it" >&2; exit 1
fi
"""


def sbcast(words: Sequence[str]) -> int:
    """Copy SOURCE to DEST on each node of the job."""
    parser = Arguments("sbcast", "Copy a file to each node of the job that this runs in.")
    option = parser.option
    option("-f", "--force", flag=True, help="replace a file that is there")
    option("-p", "--preserve", flag=True)  # modes always are, as with Slurm's -p
    for words_of in (("-F", "--fanout"), ("-s", "--size"), ("-t", "--timeout")):
        option(*words_of)
    parser.add_argument("source")
    parser.add_argument("dest")
    given = parser.read(words)
    if not os.environ.get("DLSCHED_CTL_SOCK"):
        raise DlschedError("only inside a job: it copies to the nodes of its job")
    from dlsched.job.srun import main as srun  # noqa: PLC0415

    dest = given.dest
    if dest.endswith("/"):
        dest += os.path.basename(given.source)
    try:
        source = os.open(given.source, os.O_RDONLY)
        mode = os.fstat(source).st_mode & 0o777
        os.dup2(source, 0)
    except OSError as error:
        raise BadInput(f"{given.source}: {error.strerror}") from None
    count = os.environ.get("SLURM_NNODES", "1")
    force = "yes" if given.force else "no"
    where = ["-N", count, "-n", count, "--ntasks-per-node", "1", "--overlap", "--input", "all"]
    return srun([*where, "sh", "-c", _RECEIVE, "sbcast", dest, f"{mode:o}", force])
