"""An HTTP server that answers when a file is there, and writes when it gets SIGTERM."""

from __future__ import annotations

import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType

FOLDER = Path(sys.argv[1])


class Answering(BaseHTTPRequestHandler):
    """Answers `done`."""

    def do_GET(self) -> None:
        (FOLDER / "asked").touch()
        while not (FOLDER / "answer").exists():
            time.sleep(0.01)
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"done")

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def ended(_number: int, _frame: FrameType | None) -> None:
    """Write that the signal came, and leave."""
    (FOLDER / "term").touch()
    os._exit(0)


signal.signal(signal.SIGTERM, ended)
ThreadingHTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Answering).serve_forever()
