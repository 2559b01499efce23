"""The process that talks to the driver: reads one question a line, writes one answer a line.

`nvml` starts it; when the driver hangs, only this process hangs with it.
"""

from __future__ import annotations

import json
import sys

from dlsched.nodeagent.json_values import plain


def main() -> None:
    """Answer until the input ends."""
    try:
        from dlsched.nodeagent.gpus.nvml_reader import NvmlReader  # noqa: PLC0415  # may fail

        reader = NvmlReader()
    except Exception as error:  # no library, no driver or no permission
        print(json.dumps({"failed": str(error) or type(error).__name__}), flush=True)
        return
    print(json.dumps({"number": 0}), flush=True)  # it is ready
    for line in sys.stdin:
        number, _, question = line.strip().partition(" ")
        try:
            found = reader.inventory() if question == "inventory" else reader.states()
            answer = json.dumps({"number": int(number), "answer": found}, default=plain)
        except Exception as error:  # the agent decides what to do
            answer = json.dumps({"failed": str(error) or type(error).__name__})
        print(answer, flush=True)


if __name__ == "__main__":
    main()
