"""An HTTP server that works a while on each request, and says which process it is."""

from __future__ import annotations

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

WORK_S = float(sys.argv[1])


class Answering(BaseHTTPRequestHandler):
    """Answers with the number of its replica, its process, and what was sent."""

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(WORK_S)
        replica = int(os.environ["DLSCHED_SERVICE_REPLICA"])
        body = json.dumps({"replica": replica, "process": os.getpid(), "sent": sent.decode()})
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """Write nothing."""


HTTPServer((os.environ["HOST"], int(os.environ["PORT"])), Answering).serve_forever()
