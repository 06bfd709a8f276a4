"""Who has signed in, and that each sees their own threads alone.

Tokens come from ``EXAMPLE_SERVER_USERS``, a JSON object of names by token. An application of yours
asks its identity provider instead; what it must give is an identity that nobody else can have.
"""

from __future__ import annotations

import hmac
import json
import os
from typing import Any

from langgraph_sdk import Auth

auth = Auth()

_users: dict[str, str] = json.loads(os.environ.get("EXAMPLE_SERVER_USERS", "{}"))


@auth.authenticate
async def authenticate(authorization: str | None) -> Auth.types.MinimalUserDict:
    """The name that a bearer token stands for."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() == "bearer":
        for known, name in _users.items():
            if hmac.compare_digest(known.encode(), token.encode()):
                return {"identity": name}
    raise Auth.exceptions.HTTPException(status_code=401, detail="Send a known bearer token.")


@auth.on
async def own(ctx: Auth.types.AuthContext, value: dict[str, Any]) -> dict[str, str]:
    """Mark what somebody makes as theirs, and show them nothing else."""
    mine = {"owner": ctx.user.identity}
    value.setdefault("metadata", {}).update(mine)
    return mine
