"""Tokens for remote users: made, listed and revoked.

Invariant: a token is shown once and only its digest is stored. A caller with a token gets no other
token, so a stolen token is useless when it expires.
"""

from __future__ import annotations

import asyncio
import logging
import pwd

from dlsched.core.errors import BadInput, NotAllowed
from dlsched.daemon.control.bounds import check_text
from dlsched.daemon.rpc_errors import NotFound, NotPossible, TooMuch, answered
from dlsched.rpc.identity import UNMAPPED_UIDS, Identity, identity_of
from dlsched.rpc.tokens import TokenRecord, TokenStore, new_remote
from dlsched.rpc.v1 import control_pb2
from dlsched.system.clock import wall

log = logging.getLogger("dlsched.daemon.control")
LONGEST_S = 366 * 86400.0
MADE_BY_ONE, WITHIN_S = 100, 30 * 86400.0  # tokens of a user: records of them are kept


class TokenService:
    """The part of the Control service that is about tokens.

    Attributes:
        tokens: the store of their records.
    """

    tokens: TokenStore

    @answered
    async def CreateToken(  # noqa: N802
        self, request: control_pb2.CreateTokenRequest, context: object
    ) -> control_pb2.CreateTokenReply:
        """Make a token for the caller; an operator may make one for any user."""
        caller = identity_of(context)
        user = request.user or caller.name
        if caller.via == "token":
            raise NotAllowed("a token makes no tokens: log in on the daemon's machine")
        _check_own(caller, user)
        check_text("user", user)
        check_text("comment", request.comment, 200)
        if not 0 < request.lifetime_s <= LONGEST_S:
            raise BadInput(f"a token lives above 0 s and up to {LONGEST_S / 86400:.0f} days")
        await _check_account(user)
        if not caller.is_operator:
            await self._check_number(user)
        made = new_remote(user, lifetime_s=request.lifetime_s, now=wall(), comment=request.comment)
        await self.tokens.add_token(made.record)
        log.info(
            "event=token-created token=%s user=%s by=%s", made.record.token_id, user, caller.name
        )
        return control_pb2.CreateTokenReply(token=made.token, view=_view(made.record))

    async def _check_number(self, user: str) -> None:
        since = wall() - WITHIN_S
        made = sum(each.created_at > since for each in await self.tokens.list_tokens(user))
        if made >= MADE_BY_ONE:
            days = f"{WITHIN_S / 86400:.0f} days"
            raise TooMuch(f"{user} has made {made} tokens in {days}, at most {MADE_BY_ONE}")

    @answered
    async def ListTokens(  # noqa: N802
        self, request: control_pb2.ListTokensRequest, context: object
    ) -> control_pb2.ListTokensReply:
        """List the caller's tokens; an operator may list all."""
        caller = identity_of(context)
        if request.all_users and not caller.is_operator:
            raise NotAllowed(f"all users' tokens are for operators only; {caller} is none")
        user = None if request.all_users else request.user or caller.name
        if user is not None:
            _check_own(caller, user)
        found = await self.tokens.list_tokens(user)
        return control_pb2.ListTokensReply(tokens=[_view(record) for record in found])

    @answered
    async def RevokeToken(  # noqa: N802
        self, request: control_pb2.RevokeTokenRequest, context: object
    ) -> control_pb2.RevokeTokenReply:
        """Revoke a token now."""
        caller = identity_of(context)
        known = await self.tokens.find_token(request.token_id)
        # other users do not learn that a token exists
        if known is None or not (caller.is_operator or _is(caller, known.user)):
            raise NotFound(f"no token {request.token_id[:40]!r} of {caller.name}")
        await self.tokens.revoke_token(known.token_id, wall())
        log.info("event=token-revoked token=%s by=%s", known.token_id, caller.name)
        return control_pb2.RevokeTokenReply(
            view=_view(await self.tokens.find_token(known.token_id) or known)
        )


def _is(caller: Identity, user: str) -> bool:
    return caller.kind == "user" and caller.name == user


def _check_own(caller: Identity, user: str) -> None:
    if not (caller.is_operator or _is(caller, user)):
        raise NotAllowed(f"the tokens of {user} are not {caller}'s")


async def _check_account(user: str) -> None:
    try:
        uid = (await asyncio.to_thread(pwd.getpwnam, user)).pw_uid
    except KeyError:
        raise NotPossible(f"there is no user {user} on the daemon's machine") from None
    if uid == 0 or uid in UNMAPPED_UIDS:
        raise NotPossible(f"{user} gets no token: not for use from a distance")


def _view(record: TokenRecord) -> control_pb2.TokenView:
    return control_pb2.TokenView(
        token_id=record.token_id,
        user=record.user,
        created_at=record.created_at,
        expires_at=record.expires_at,
        revoked_at=record.revoked_at,
        comment=record.comment,
    )
