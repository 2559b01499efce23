"""An agent whose keepers, and all that they fork, may import no module after their fork.

A keeper's child has its user's rights, and the user may not be allowed to read the agent's Python;
a keeper outlives an upgrade of the Python that it was started with. Run as the agent itself; its
zygote is this file with `zygote` as the first argument.
"""

from __future__ import annotations

import os
import runpy
import sys


class _Refusing:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        raise ImportError(f"{name} is imported after the fork")


if sys.argv[1] == "zygote":
    del sys.argv[1]
    os.register_at_fork(after_in_child=lambda: sys.meta_path.insert(0, _Refusing))  # type: ignore[arg-type]
    runpy.run_module("dlsched.nodeagent.keeper.zygote", run_name="__main__", alter_sys=True)
else:
    from dlsched.nodeagent.agent.keepers import zygote_link

    zygote_link.ZYGOTE = (sys.executable, "-S", "-OO", __file__, "zygote")
    runpy.run_module("dlsched.nodeagent", run_name="__main__", alter_sys=True)
