"""What a Hindsight server holds of a bank, asked of the server itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request


def bank_config(url, bank_id):
    """What a bank is set to by itself; None where there is no such bank."""
    quoted = urllib.parse.quote(bank_id, safe="")
    try:
        with urllib.request.urlopen(f"{url}/v1/default/banks/{quoted}/config") as response:
            return json.load(response)["overrides"]
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise


def make_bank(url, bank_id, **missions):
    """Make a bank as somebody else would."""
    quoted = urllib.parse.quote(bank_id, safe="")
    request = urllib.request.Request(
        f"{url}/v1/default/banks/{quoted}",
        json.dumps(missions).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    with urllib.request.urlopen(request):
        pass
