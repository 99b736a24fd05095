"""Writes about people: making them, choosing passwords, access tokens, counting what failed."""

import secrets
import string
from collections.abc import Iterable
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import F, Q
from django.utils import timezone

from webapp.accounts.models import TOKEN_PREFIX, AccessToken, Scope, SignInFailures, User
from webapp.accounts.selectors import (
    FAILURE_WINDOW,
    TOKEN,
    failure_keys,
    is_secret_of,
    seconds_to_wait,
    token_digest,
    token_failure_keys,
)

# Without letters and digits that look alike, since people copy it from a terminal.
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"

DEFAULT_TOKEN_DAYS, LONGEST_TOKEN_DAYS = 90, 365
MOST_TOKENS = 50  # of one person that have not ended
LAST_USED_STEP = timedelta(minutes=1)


class TokenRefused(Exception):
    """The token opens nothing. `reason` is one of invalid, expired, revoked."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class TooManyFailures(Exception):
    """Nothing was looked at; try again in `seconds`."""

    def __init__(self, seconds: int) -> None:
        super().__init__(seconds)
        self.seconds = seconds


def one_time_password() -> str:
    """Four groups of four characters: 79 random bits."""
    return "-".join("".join(secrets.choice(ALPHABET) for _ in range(4)) for _ in range(4))


@transaction.atomic
def create_user_with_one_time_password(email: str, *, display_name: str = "") -> tuple[User, str]:
    """The person and a password that is shown once. Someone who exists already gets a new password."""
    password = one_time_password()
    user = User.objects.filter(email=email.strip().lower()).first()
    if user is None:
        user = User.objects.create_user(email, password, display_name=display_name, must_choose_password=True)
    else:
        user.set_password(password)
        user.must_choose_password = True
        user.save(update_fields=["password", "must_choose_password"])
    return user, password


def choose_password(*, user: User, password: str) -> None:
    """Sets the password; raises `ValidationError` when it is too weak."""
    validate_password(password, user)
    user.set_password(password)
    user.must_choose_password = False
    user.save(update_fields=["password", "must_choose_password"])


def keep_password(*, user: User) -> None:
    """Leaves the password that the person was given."""
    user.must_choose_password = False
    user.save(update_fields=["must_choose_password"])


@transaction.atomic
def deactivate(*, user: User) -> int:
    """The person can no longer sign in and their tokens are revoked; how many. Coming back does not revive a token."""
    user.is_active = False
    user.save(update_fields=["is_active"])
    return AccessToken.objects.filter(user=user, revoked_at=None).update(revoked_at=timezone.now())


# Access tokens


@transaction.atomic
def create_token(
    *, user: User, name: str, scopes: Iterable[str], days: int = DEFAULT_TOKEN_DAYS, within: str = ""
) -> tuple[AccessToken, str]:
    """The token's row and the token itself, which cannot be shown again. Raises ValidationError."""
    wanted = set(scopes)
    if not wanted or wanted - set(Scope.values):
        raise ValidationError({"scopes": f"Expected some of {', '.join(Scope.values)}."})
    if not 1 <= days <= LONGEST_TOKEN_DAYS:
        raise ValidationError({"days": f"Found {days}; expected 1 to {LONGEST_TOKEN_DAYS} days."})
    now = timezone.now()
    if AccessToken.objects.filter(user=user, revoked_at=None, expires_at__gt=now).count() >= MOST_TOKENS:
        raise ValidationError(f"You have {MOST_TOKENS} tokens, the most there may be. Revoke one first.")
    secret = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40))
    token = AccessToken(
        user=user,
        name=name.strip(),
        public_id="".join(secrets.choice(ALPHABET) for _ in range(10)),
        digest=token_digest(secret),
        scopes=[scope for scope in Scope.values if scope in wanted],
        within=within,
        expires_at=now + timedelta(days=days),
    )
    token.full_clean()
    token.save()
    return token, f"{TOKEN_PREFIX}{token.public_id}_{secret}"


def revoke_token(*, token: AccessToken) -> None:
    """Ends the token now; one that has ended already stays as it is."""
    AccessToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def use_token(text: str, *, network_address: str) -> AccessToken:
    """The token that was presented, with its person. Raises TokenRefused, or TooManyFailures before looking at it."""
    shape = TOKEN.fullmatch(text)
    public_id, secret = shape.groups() if shape else ("", "")
    keys = token_failure_keys(public_id=public_id, network_address=network_address)
    if wait := seconds_to_wait(keys):
        raise TooManyFailures(wait)
    token = AccessToken.objects.select_related("user").filter(public_id=public_id).first()
    if not is_secret_of(token, secret) or token is None or not token.user.is_active:
        _count(keys)
        raise TokenRefused("invalid", "There is no such token. Make one in the account menu, under Access tokens.")
    now = timezone.now()
    if ended := token.ended(now):
        _count(keys)
        raise TokenRefused(ended, f"The token {token.hint} has been {ended}. Make a new one under Access tokens.")
    unused = Q(last_used_at=None) | Q(last_used_at__lt=now - LAST_USED_STEP)
    AccessToken.objects.filter(unused, pk=token.pk).update(last_used_at=now)
    return token


# Counting failures


def count_failure(*, email: str, network_address: str) -> None:
    """One more failed sign-in."""
    _count(failure_keys(email=email, network_address=network_address))


@transaction.atomic
def _count(keys: Iterable[str]) -> None:
    """One more failure for each key; a count older than the window starts again at one."""
    now = timezone.now()
    SignInFailures.objects.filter(since__lt=now - timedelta(seconds=FAILURE_WINDOW)).delete()
    for key in keys:
        row, made = SignInFailures.objects.get_or_create(key=key, defaults={"count": 1, "since": now})
        if not made:
            SignInFailures.objects.filter(pk=row.pk).update(count=F("count") + 1)


def forget_failures(*, email: str, network_address: str) -> None:
    """After a success the address's own count ends; the one of the whole network address goes on."""
    own_key = next(iter(failure_keys(email=email, network_address=network_address)))
    SignInFailures.objects.filter(key=own_key).delete()
