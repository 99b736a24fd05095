"""Writes about people: making them, choosing passwords, counting failed sign-ins."""

import secrets
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.db import transaction
from django.db.models import F
from django.utils import timezone

from webapp.accounts.models import SignInFailures, User
from webapp.accounts.selectors import FAILURE_WINDOW, failure_keys

# Without letters and digits that look alike, since people copy it from a terminal.
ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"


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
def count_failure(*, email: str, network_address: str) -> None:
    """One more failed sign-in; a count older than the window starts again at one."""
    now = timezone.now()
    SignInFailures.objects.filter(since__lt=now - timedelta(seconds=FAILURE_WINDOW)).delete()
    for key in failure_keys(email=email, network_address=network_address):
        row, made = SignInFailures.objects.get_or_create(key=key, defaults={"count": 1, "since": now})
        if not made:
            SignInFailures.objects.filter(pk=row.pk).update(count=F("count") + 1)


def forget_failures(*, email: str, network_address: str) -> None:
    """After a success the address's own count ends; the one of the whole network address goes on."""
    own_key = next(iter(failure_keys(email=email, network_address=network_address)))
    SignInFailures.objects.filter(key=own_key).delete()
