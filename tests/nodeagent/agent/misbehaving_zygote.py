"""A zygote that misbehaves as the lines of a file say, one line a request, then no more.

Its keepers hold the spawning lock until they have recorded their run, as real ones do, write down
their run and their process, say the run to their agent, and wait.
"""

import array
import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

PLAN, LOG, CONTROL, LOCK = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def next_fault() -> str:
    with open(PLAN, "r+") as file:
        faults = file.read().split()
        file.seek(0)
        file.truncate()
        file.write(" ".join(faults[1:]))
    return faults[0] if faults else "none"


def set_name(name: str) -> None:
    Path("/proc/self/comm").write_text(name)


def keep(spec: dict, line: int, records: bool) -> None:
    set_name("dls-keeper")
    key = spec["desired"]["key"]
    with open(LOG, "a") as log:
        log.write(f"{key['run_id']} {os.getpid()}\n")
    if records:
        stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        keeper = {"boot_id": BOOT, "pid": os.getpid(), "start": int(stat[19])}
        known = {"desired": spec["desired"], "facts": spec["facts"]}
        path = f"{spec['state_dir']}/jobs/{key['job']}.{key['run']}.{key['run_id']}"
        os.makedirs(path)
        with open(f"{path}/new", "w") as file:
            json.dump({**known, "boot_id": BOOT, "keeper": keeper}, file)
        os.rename(f"{path}/new", f"{path}/run.json")
        os.close(LOCK)
    with contextlib.suppress(OSError):
        os.write(line, key["run_id"].encode())
    time.sleep(1000)


def main() -> None:
    set_name("dls-zygote")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    agent = socket.socket(fileno=CONTROL)
    agent.send(json.dumps({"namespaces": False}).encode())
    while True:
        data, fds, _, _ = socket.recv_fds(agent, 4096, 2)
        if not data:
            return
        number = json.loads(data)["number"]
        fault = next_fault()
        if fault == "dies":
            os._exit(9)
        if fault == "stops":
            os.kill(os.getpid(), signal.SIGSTOP)
        with os.fdopen(fds[0], "rb") as file:
            spec = json.load(file)
        pid = os.fork()
        if pid == 0:
            agent.close()
            keep(spec, fds[1], not fault.startswith("unrecorded"))
        os.close(fds[1])
        process = os.pidfd_open(pid)
        if fault.endswith("then-dies"):
            time.sleep(0.1)
            os._exit(9)
        if fault.endswith("then-stops"):
            os.kill(os.getpid(), signal.SIGSTOP)
        if fault == "answers-another":
            number -= 1
        passed = [] if fault == "gives-no-descriptor" else [process]
        for _ in range(2 if fault == "answers-twice" else 1):
            held = array.array("i", passed)
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, held)] if passed else []
            agent.sendmsg([json.dumps({"number": number, "pid": pid}).encode()], ancillary)
        os.close(process)


main()
