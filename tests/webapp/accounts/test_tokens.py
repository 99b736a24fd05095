"""Access tokens: what is kept of them, when they end, and how guessing is slowed down."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.utils import timezone

from webapp.accounts import selectors, services
from webapp.accounts.models import AccessToken, Scope, User
from webapp.accounts.services import TokenRefused, TooManyFailures, create_token, revoke_token, use_token

HERE = "127.0.0.1"


def _refusal(text: str) -> str:
    with pytest.raises(TokenRefused) as caught:
        use_token(text, network_address=HERE)
    return caught.value.reason


def test_a_token_is_shown_once_and_only_its_digest_is_kept(member: User) -> None:
    token, text = create_token(user=member, name="nightly", scopes=["read"])
    assert selectors.TOKEN.fullmatch(text)
    secret = text.rpartition("_")[2]
    row = AccessToken.objects.filter(pk=token.pk).values().get()
    assert all(secret not in str(value) for value in row.values())
    assert len(row["digest"]) == 64
    assert text.startswith(token.hint.removesuffix("…"))
    assert use_token(text, network_address=HERE).user == member


def test_a_digest_is_worth_nothing_without_the_servers_key(member: User, settings: Any) -> None:
    _token, text = create_token(user=member, name="t", scopes=["read"])
    first = settings.SECRET_KEY
    settings.SECRET_KEY = "another key of the server, long enough to be one"
    assert _refusal(text) == "invalid"
    settings.SECRET_KEY_FALLBACKS = [first]
    assert use_token(text, network_address=HERE).user == member


@pytest.mark.parametrize("text", ["", "unsq_", "unsq_abcdefghij_" + "x" * 40, "Bearer", "unsq_\x00", "ü" * 60])
def test_what_is_no_token_opens_nothing(text: str, db: None) -> None:
    assert _refusal(text) == "invalid"


def test_one_wrong_character_is_enough(member: User) -> None:
    _token, text = create_token(user=member, name="t", scopes=["read"])
    assert _refusal(text[:-1] + ("a" if text[-1] != "a" else "b")) == "invalid"


def test_a_token_ends_by_time_and_by_hand(member: User) -> None:
    token, text = create_token(user=member, name="t", scopes=["read"], days=7)
    assert token.expires_at - timezone.now() > timedelta(days=6, hours=23)
    AccessToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert _refusal(text) == "expired"
    AccessToken.objects.update(expires_at=timezone.now() + timedelta(days=1))
    revoke_token(token=token)
    assert _refusal(text) == "revoked"


def test_ninety_days_unless_said_otherwise_and_a_year_at_most(member: User) -> None:
    token, _ = create_token(user=member, name="t", scopes=["read"])
    assert (token.expires_at - token.created_at).days in (89, 90)
    for days in (0, 366):
        with pytest.raises(ValidationError, match="expected 1 to 365 days"):
            create_token(user=member, name="t", scopes=["read"], days=days)


@pytest.mark.parametrize("scopes", [[], ["root"], ["read", "root"]])
def test_scopes_are_some_of_the_known_ones(scopes: list[str], member: User) -> None:
    with pytest.raises(ValidationError, match="Expected some of read, launch, write, manage"):
        create_token(user=member, name="t", scopes=scopes)
    assert set(Scope.values) == {"read", "launch", "write", "manage"}


def test_closing_an_account_ends_its_tokens_for_good(member: User, owner: User) -> None:
    _token, text = create_token(user=member, name="t", scopes=["read"])
    _other, others = create_token(user=owner, name="t", scopes=["read"])
    call_command("deactivate", member.email)
    assert _refusal(text) == "invalid"
    User.objects.filter(pk=member.pk).update(is_active=True)
    assert _refusal(text) == "revoked"
    assert use_token(others, network_address=HERE).user == owner


def test_the_last_use_is_noted_once_a_minute(member: User) -> None:
    token, text = create_token(user=member, name="t", scopes=["read"])
    use_token(text, network_address=HERE)
    token.refresh_from_db()
    first = token.last_used_at
    assert first is not None
    use_token(text, network_address=HERE)
    token.refresh_from_db()
    assert token.last_used_at == first
    AccessToken.objects.update(last_used_at=first - timedelta(minutes=2))
    use_token(text, network_address=HERE)
    token.refresh_from_db()
    assert token.last_used_at >= first


def test_guessing_a_token_is_slowed_down_without_stopping_the_others(member: User) -> None:
    _token, text = create_token(user=member, name="t", scopes=["read"])
    _other, others = create_token(user=member, name="t", scopes=["read"])
    wrong = text[:-40] + "x" * 40
    for _ in range(selectors.LIMIT_ONE_TOKEN):
        assert _refusal(wrong) == "invalid"
    with pytest.raises(TooManyFailures) as caught:
        use_token(text, network_address=HERE)
    assert 0 < caught.value.seconds <= selectors.FAILURE_WINDOW
    assert use_token(others, network_address=HERE).user == member
    assert use_token(text, network_address="10.0.0.9").user == member


def test_one_address_cannot_try_them_all(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selectors, "LIMIT_TOKENS_OF_ADDRESS", 3)
    for letter in "abc":
        assert _refusal(f"unsq_{letter * 10}_{'x' * 40}") == "invalid"
    with pytest.raises(TooManyFailures):
        use_token(f"unsq_{'d' * 10}_{'x' * 40}", network_address=HERE)


def test_nobody_collects_tokens_without_end(member: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "MOST_TOKENS", 2)
    for _ in range(2):
        token, _text = create_token(user=member, name="t", scopes=["read"])
    with pytest.raises(ValidationError, match="the most there may be"):
        create_token(user=member, name="t", scopes=["read"])
    revoke_token(token=token)
    create_token(user=member, name="t", scopes=["read"])


@pytest.mark.parametrize(
    ("within", "team", "project", "opens"),
    [
        ("", "lab", "countdown", True),
        ("lab", "lab", "", True),
        ("lab", "lab", "countdown", True),
        ("lab", "labs", "countdown", False),
        ("lab/countdown", "lab", "countdown", True),
        ("lab/countdown", "lab", "", False),
        ("lab/countdown", "lab", "countdown-2", False),
    ],
)
def test_a_token_may_be_for_one_place(within: str, team: str, project: str, opens: bool) -> None:
    assert AccessToken(within=within).opens(team, project) is opens
