"""The process that talks to the driver: a question a line in, an answer a line out.

Started by `nvml`; when the driver hangs, it is this process that is left hanging.
"""

from __future__ import annotations

import json
import sys

from dlsched.nodeagent.plainjson import plain


def main() -> None:
    """Answer until the questions end."""
    try:
        from dlsched.nodeagent.gpus.nvml_reader import NvmlReader  # noqa: PLC0415  # may fail

        reader = NvmlReader()
    except Exception as error:  # no library, no driver, no permission: in its own words
        print(json.dumps({"failed": str(error) or type(error).__name__}), flush=True)
        return
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        try:
            found = reader.inventory() if line.strip() == "inventory" else reader.states()
            answer: dict[str, object] = {"answer": plain(found)}
        except Exception as error:  # the agent decides what it means
            answer = {"failed": str(error) or type(error).__name__}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
