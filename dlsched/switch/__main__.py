"""`python -m dlsched.switch`: a training and services on one device, in one job."""

from __future__ import annotations

import argparse
import signal
import sys

from dlsched.core.errors import BadInput
from dlsched.switch.controller import Controller


def main() -> int:
    """Run until the job is ended, or until the training is done if that is wished."""
    found = argparse.ArgumentParser(prog="python -m dlsched.switch", description=__doc__)
    found.add_argument("--training", default="", metavar="FILE", help="with build and iteration")
    found.add_argument(
        "--service", action="append", default=[], metavar="NAME=FILE", help="with build and example"
    )
    found.add_argument("--listen", required=True, metavar="PATH|http", help="socket for requests")
    found.add_argument("--until-trained", action="store_true", help="end with the training")
    given = found.parse_args()
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(143))
    try:
        services = dict(each.split("=", 1) for each in given.service)
    except ValueError:
        found.error("--service: NAME=FILE is expected")
    try:
        controller = Controller(given.listen, given.training, services)
    except BadInput as error:
        print(f"dlsched.switch: {error}", file=sys.stderr)
        return 2
    try:
        controller.run(until_trained=given.until_trained)
    finally:
        controller.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
