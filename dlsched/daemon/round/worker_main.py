"""The process in which policies run: it reads requests and writes answers.

It has one end of a socket pair and no other file. An exception of a part becomes a line of text; an
error that cannot be caught ends the process, which its parent notices.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import re
import resource
import signal
import socket
import sys
import time
import traceback
from dataclasses import asdict
from importlib import import_module

from dlsched.core.errors import BadInput, DlschedError, PolicyFailed
from dlsched.core.round.steps import refuse_chosen_gpus
from dlsched.daemon.round.codec import HEADER, SHOW_STACK, decode, encode
from dlsched.daemon.round.decide import decide, table_for_needs
from dlsched.daemon.round.forecasts.alternatives import Question
from dlsched.daemon.round.forecasts.answering import answer
from dlsched.daemon.round.forecasts.forecasting import foreseen
from dlsched.daemon.round.parts import (
    RoundSettings,
    live_parts,
    options_left_out,
    refuse_unfit,
    refuse_unknown,
)
from dlsched.daemon.round.restore import cluster_of
from dlsched.daemon.round.site_function import ask_site
from dlsched.daemon.round.snapshot import LiveSnapshot


def serve(fd: int) -> None:
    """Answer requests until the other end is closed."""
    with socket.socket(fileno=fd) as connection, connection.makefile("rwb") as stream:
        stream.write(b"+")
        stream.flush()
        # a round makes many objects and nearly no cycles: they are looked for after the answer
        gc.freeze()
        gc.disable()
        while header := stream.read(HEADER.size):
            if len(header) < HEADER.size:
                return
            number, verb, data = decode(stream.read(HEADER.unpack(header)[0]))
            before = time.process_time()
            kind, answered, trace = _answer(verb, data)
            told = encode([number, kind, answered, trace, time.process_time() - before])
            stream.write(HEADER.pack(len(told)))
            stream.write(told)
            stream.flush()
            gc.collect(1)


def _answer(verb: str, data: bytes) -> tuple[str, object, str]:
    """How it went, the answer or why there is none, and where a part's code has failed."""
    try:
        return "done", _VERBS[verb](data), ""
    except SystemExit as error:
        why = f"it wanted to end its process: {error!r}{_place(error)}"
        return "failed", _of_policy(data) + why, traceback.format_exc()
    except BadInput as error:
        return "refused" if verb in ("check", "try", "suppose") else "failed", str(error), ""
    except DlschedError as error:
        cause = error.__cause__
        where = "" if cause is None else _place(cause)
        return "failed", f"{error}{where}", traceback.format_exc()
    except MemoryError:
        gc.collect()
        return "failed", f"{_of_policy(data)}it wanted more memory than a policy may have", ""
    except Exception as error:  # whatever a part's code did must not end as silence
        what = "it" if verb == "site" else "the round"
        why = f"{what} failed: {error!r}{_place(error)}"
        return "failed", _of_policy(data) + why, traceback.format_exc()


def _place(error: BaseException) -> str:
    """The line of a part's code that has raised an error, or has called a library that did."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if not re.search(r"/(numpy|scipy|highspy)/", each.filename)]
    last = (own or frames)[-1]
    return f", in {last.name}, {last.filename}:{last.lineno}"


def _of_policy(data: bytes) -> str:
    try:
        return f"policy {LiveSnapshot.from_bytes(data).settings.policy}: "
    except BadInput:
        return ""


def _decide(data: bytes) -> bytes:
    return decide(LiveSnapshot.from_bytes(data), time.process_time).to_bytes()


def _check(data: bytes) -> bytes:
    refuse_unknown(RoundSettings(**decode(data)))
    return b""


def _left_out(data: bytes) -> bytes:
    return encode(options_left_out(RoundSettings(**decode(data))))


def _try(data: bytes) -> bytes:
    snapshot = LiveSnapshot.from_bytes(data)
    parts = live_parts(snapshot.settings, has_quotas=bool(snapshot.quotas))
    refuse_unfit(parts, table_for_needs(snapshot))
    cluster = cluster_of(snapshot)
    if cluster is not None:
        refuse_chosen_gpus(parts, cluster)
    try:
        decide(snapshot, time.process_time)  # for nothing: does it know what to do with these jobs?
    except PolicyFailed as error:
        raise BadInput(str(error)) from None
    return b""


def _forecast(data: bytes) -> bytes:
    asked = decode(data)
    snapshot = LiveSnapshot.from_bytes(asked["snapshot"])
    found = foreseen(snapshot, horizon_s=asked["horizon_s"], patience_s=asked["patience_s"])
    return encode([tuple(each) for each in found])


def _suppose(data: bytes) -> bytes:
    return encode([asdict(each) for each in answer(Question.from_bytes(data))])


_VERBS = {
    "site": ask_site,
    "decide": _decide,
    "check": _check,
    "left-out": _left_out,
    "try": _try,
    "forecast": _forecast,
    "suppose": _suppose,
}


def main(arguments: list[str]) -> None:
    """Set the bounds and serve."""
    fd, memory, nice, *modules = arguments
    if int(memory):
        resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):
        os.nice(int(nice))
    faulthandler.register(SHOW_STACK)
    for module in modules:
        import_module(module)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        serve(int(fd))
    if os.getpgrp() == os.getpid():  # what a policy has started ends, too
        os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
