"""The program `python -m dlsched.nodeagent`."""

from __future__ import annotations

import sys

from dlsched.nodeagent import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
