"""An HTTP server that writes down each request when it begins, and when it gets SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

LOG = sys.argv[1]
works = 0  # requests that it works on


def note(text: str) -> None:
    """Append a line at once, whatever other servers write."""
    with open(LOG, "ab", buffering=0) as file:
        file.write(f"{text}\n".encode())


class Counting(BaseHTTPRequestHandler):
    """Answers with what was sent: a number, and the seconds that the answer takes."""

    def do_POST(self) -> None:
        global works  # noqa: PLW0603  # of this process
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        works += 1
        number, work_s = sent.decode().split()
        note(f"begins {number}")
        time.sleep(float(work_s))
        self.send_response(200)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)
        self.wfile.flush()
        works -= 1

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def ended(_number: int, _frame: FrameType | None) -> None:
    """Write how many requests the signal has cut off, and leave."""
    note(f"term {works}")
    os._exit(0)


signal.signal(signal.SIGTERM, ended)
ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Counting).serve_forever()
