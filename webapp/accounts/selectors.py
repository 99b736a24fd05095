"""Reads about signing in and access tokens."""

import math
import re
from collections.abc import Mapping
from datetime import timedelta

from django.conf import settings
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from webapp.accounts.models import TOKEN_PREFIX, AccessToken, SignInFailures, User

FAILURE_WINDOW = 15 * 60  # seconds
LIMIT_ONE_PERSON = 8  # failures for one e-mail address from one network address
LIMIT_ONE_ADDRESS = 60  # failures from one network address, whoever it tries
LIMIT_ONE_TOKEN = 20  # failures of one token's public id from one network address
LIMIT_TOKENS_OF_ADDRESS = 200  # failures of tokens from one network address, whichever it tries

TOKEN = re.compile(rf"{TOKEN_PREFIX}([a-z0-9]{{10}})_([A-Za-z0-9]{{40}})")


def failure_keys(*, email: str, network_address: str) -> dict[str, int]:
    """Digest -> limit. Digests, so that the table does not list who signs in from where."""
    person = f"{email.strip().lower()}|{network_address}"
    return {_digest(f"person|{person}"): LIMIT_ONE_PERSON, _digest(f"address|{network_address}"): LIMIT_ONE_ADDRESS}


def token_failure_keys(*, public_id: str, network_address: str) -> dict[str, int]:
    """The same for access tokens."""
    return {
        _digest(f"token|{public_id}|{network_address}"): LIMIT_ONE_TOKEN,
        _digest(f"tokens|{network_address}"): LIMIT_TOKENS_OF_ADDRESS,
    }


def seconds_until_sign_in(*, email: str, network_address: str) -> int:
    """0 when signing in may be tried, else how long to wait."""
    return seconds_to_wait(failure_keys(email=email, network_address=network_address))


def seconds_to_wait(limits: Mapping[str, int]) -> int:
    """0 when none of the counters (digest -> limit) is full, else how long until none is."""
    now = timezone.now()
    wait = 0.0
    for row in SignInFailures.objects.filter(key__in=limits):
        ends = row.since + timedelta(seconds=FAILURE_WINDOW)
        if row.count >= limits[row.key]:
            wait = max(wait, (ends - now).total_seconds())
    return math.ceil(wait)


def _digest(value: str) -> str:
    return salted_hmac("webapp.accounts.failures", value, algorithm="sha256").hexdigest()


# Access tokens


def tokens_of(user: User) -> QuerySet[AccessToken]:
    """All of a person's tokens, newest first, ended ones included."""
    return AccessToken.objects.filter(user=user)


def token_digest(secret: str, key: str | bytes | None = None) -> str:
    """What is kept of a token's secret: an HMAC under the server's key (or an earlier one), useless without it."""
    return salted_hmac("webapp.accounts.tokens", secret, secret=key, algorithm="sha256").hexdigest()


def is_secret_of(token: AccessToken | None, secret: str) -> bool:
    """Whether the secret belongs to the token, in a time that does not depend on how much of it is right."""
    kept = token.digest if token is not None else ""
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    fits = [constant_time_compare(token_digest(secret, key), kept) for key in keys]
    return any(fits)
