"""`python -m dlsched.job finished`: a script without the library says that its job is done.

From then on exit code 0 completes the job, also when it is asked to stop at that moment.
"""

from __future__ import annotations

import os
import sys

from dlsched.job.keeper_link import KeeperLink
from dlsched.job.messages import Leaving
from dlsched.job.runtime import Runtime


def main(words: list[str]) -> int:
    """Tell the keeper; without a scheduler there is nothing to tell."""
    if words != ["finished"]:
        print("usage: python -m dlsched.job finished", file=sys.stderr)
        return 2
    runtime = Runtime.of(os.environ)
    link = KeeperLink(runtime.control_socket, runtime.rank, runtime.run_id)
    link.send(Leaving(finished=True, job=True), must_arrive=True)
    link.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
