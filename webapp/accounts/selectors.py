"""Reads about signing in."""

import math
from datetime import timedelta

from django.utils import timezone
from django.utils.crypto import salted_hmac

from webapp.accounts.models import SignInFailures

FAILURE_WINDOW = 15 * 60  # seconds
LIMIT_ONE_PERSON = 8  # failures for one e-mail address from one network address
LIMIT_ONE_ADDRESS = 60  # failures from one network address, whoever it tries


def failure_keys(*, email: str, network_address: str) -> dict[str, int]:
    """Digest -> limit. Digests, so that the table does not list who signs in from where."""
    person = f"{email.strip().lower()}|{network_address}"
    return {_digest(f"person|{person}"): LIMIT_ONE_PERSON, _digest(f"address|{network_address}"): LIMIT_ONE_ADDRESS}


def seconds_until_sign_in(*, email: str, network_address: str) -> int:
    """0 when signing in may be tried, else how long to wait."""
    limits = failure_keys(email=email, network_address=network_address)
    now = timezone.now()
    wait = 0.0
    for row in SignInFailures.objects.filter(key__in=limits):
        ends = row.since + timedelta(seconds=FAILURE_WINDOW)
        if row.count >= limits[row.key]:
            wait = max(wait, (ends - now).total_seconds())
    return math.ceil(wait)


def _digest(value: str) -> str:
    return salted_hmac("webapp.accounts.failures", value, algorithm="sha256").hexdigest()
