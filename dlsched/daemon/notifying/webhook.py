"""One call of a webhook: it follows no redirect and uses no proxy."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Mapping

from dlsched.daemon.site_rules.webhook_urls import WebhookUrl

LONGEST_ANSWER = 4096  # bytes that are read of it


def post(url: WebhookUrl, content: Mapping[str, object], timeout_s: float) -> str:
    """Send JSON to a URL; returns why it was not taken, empty if it was.

    It blocks, for `timeout_s` seconds at most for each step of the call.
    """
    connection: http.client.HTTPConnection
    if url.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            url.host, url.port, timeout=timeout_s, context=context
        )
    else:
        connection = http.client.HTTPConnection(url.host, url.port, timeout=timeout_s)
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "dlsched",
        "Idempotency-Key": str(content["id"]),
        "Connection": "close",
    }
    try:
        connection.request("POST", f"{url.path}{url.query}", json.dumps(content), headers)
        answer = connection.getresponse()
        answer.read(LONGEST_ANSWER)
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__}: {error}"[:200] or type(error).__name__
    finally:
        connection.close()
    if 200 <= answer.status < 300:
        return ""
    return f"answered {answer.status}"
