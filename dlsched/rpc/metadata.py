"""The words by which a call says who calls; a client loads no more of the trust than these."""

from __future__ import annotations

__all__ = ["BEARER", "ROLE_KEY", "TOKEN_KEY", "UID_KEY", "USER_KEY"]

TOKEN_KEY = "authorization"
USER_KEY = "dlsched-user"
UID_KEY = "dlsched-uid"
ROLE_KEY = "dlsched-role"
BEARER = "Bearer "
