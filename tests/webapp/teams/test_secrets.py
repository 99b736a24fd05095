"""A team's secrets: who stores them, that nobody reads them again, and keys that change or are missing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from tests.conftest import Cast
from webapp.core.encryption import encrypt
from webapp.teams.models import TeamSecret
from webapp.teams.secret_services import SecretUnavailable, reveal, set_secret

VALUE = "the value of the token"
OLD, NEW = "the old key, which is long enough for it", "the new key, which is long enough as well"
ClientOf = Callable[[str], Client]


def page(client: Client, cast: Cast, **posted: str) -> str:
    at = reverse("teams:secrets", args=[cast.team.slug])
    response = client.post(at, posted, follow=True) if posted else client.get(at)
    assert response.status_code == 200
    return response.content.decode()


def test_a_value_goes_in_and_never_comes_out(cast: Cast, client_of: ClientOf) -> None:
    admin = client_of("admin")
    assert "No secret yet" in page(admin, cast)
    text = page(admin, cast, name="HF_TOKEN", value=f"  {VALUE} ")
    assert "HF_TOKEN is stored" in text
    assert "by Admin" in text
    assert VALUE not in text
    assert VALUE not in page(admin, cast)
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": VALUE}
    with connection.cursor() as cursor:
        cursor.execute("SELECT * FROM teams_teamsecret")
        assert VALUE not in repr(cursor.fetchall())


def test_replacing_keeps_who_stored_it_first(cast: Cast) -> None:
    first = set_secret(team=cast.team, name="HF_TOKEN", value=VALUE, user=cast["owner"])
    second = set_secret(team=cast.team, name="HF_TOKEN", value="another value", user=cast["admin"])
    assert (second.pk, second.created_by, second.changed_by) == (first.pk, cast["owner"], cast["admin"])
    assert second.stored != first.stored
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": "another value"}


def test_deleting_it(cast: Cast, client_of: ClientOf) -> None:
    set_secret(team=cast.team, name="HF_TOKEN", value=VALUE, user=None)
    at = reverse("teams:delete-secret", args=[cast.team.slug, "HF_TOKEN"])
    text = client_of("owner").post(at, follow=True).content.decode()
    assert "HF_TOKEN is deleted" in text
    assert client_of("owner").post(at).status_code == 404
    with pytest.raises(SecretUnavailable, match="the team Lab has no secret HF_TOKEN"):
        reveal(team=cast.team, names=["HF_TOKEN"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hf_token", "expected 2 to 64 of A-Z"),
        ("1TOKEN", "expected 2 to 64 of A-Z"),
        ("A=B", "expected 2 to 64 of A-Z"),
        ("A" * 65, "at most 64 characters"),
        ("PATH", "PATH is reserved"),
        ("LD_PRELOAD", "LD_PRELOAD is reserved"),
        ("PYTHONPATH", "PYTHONPATH is reserved"),
        ("UNSQUEEZE_DATABASE_URL", "UNSQUEEZE_DATABASE_URL is reserved"),
        ("CUDA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES is reserved"),
    ],
)
def test_names_that_no_secret_may_have(cast: Cast, client_of: ClientOf, name: str, text: str) -> None:
    shown = page(client_of("admin"), cast, name=name, value=VALUE)
    assert text in shown
    assert VALUE not in shown
    assert not TeamSecret.objects.exists()


def test_a_value_too_short_to_be_kept_out_of_logs_is_refused(cast: Cast, client_of: ClientOf) -> None:
    shown = page(client_of("admin"), cast, name="PIN", value="1234567")
    assert "The value has 7 characters; expected 8 to 16384" in shown
    assert "1234567" not in shown
    with pytest.raises(ValidationError):
        set_secret(team=cast.team, name="PIN", value="       7       ", user=None)


def test_a_stored_text_is_of_no_use_in_another_row(cast: Cast) -> None:
    set_secret(team=cast.other_team, name="HF_TOKEN", value=VALUE, user=None)
    mine = set_secret(team=cast.team, name="HF_TOKEN", value="another value", user=None)
    mine.stored = cast.other_team.secrets.get().stored
    mine.save()
    with pytest.raises(SecretUnavailable, match="holds another one's value"):
        reveal(team=cast.team, names=["HF_TOKEN"])
    mine.stored, mine.key = encrypt(json.dumps([cast.team.pk, "JUDGE_KEY", VALUE]))
    mine.save()
    with pytest.raises(SecretUnavailable, match="holds another one's value"):
        reveal(team=cast.team, names=["HF_TOKEN"])


def test_a_new_key_in_front_of_the_old_one_takes_over(cast: Cast, settings: Any) -> None:
    settings.SECRETS_KEYS = [OLD]
    before = set_secret(team=cast.team, name="HF_TOKEN", value=VALUE, user=None)
    settings.SECRETS_KEYS = [NEW, OLD]
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": VALUE}
    out = io.StringIO()
    call_command("rotate_secrets", stdout=out)
    after = TeamSecret.objects.get()
    assert out.getvalue() == f"1 encrypted again; key {after.key} now holds all that could be read\n"
    assert after.key != before.key
    settings.SECRETS_KEYS = [NEW]
    assert reveal(team=cast.team, names=["HF_TOKEN"]) == {"HF_TOKEN": VALUE}


def test_a_missing_key_is_named_and_costs_nothing_else(cast: Cast, client_of: ClientOf, settings: Any) -> None:
    settings.SECRETS_KEYS = [OLD]
    secret = set_secret(team=cast.team, name="HF_TOKEN", value=VALUE, user=None)
    settings.SECRETS_KEYS = [NEW]
    text = page(client_of("admin"), cast)
    assert f"it was encrypted with key {secret.key}" in text
    assert "Set UNSQUEEZE_SECRETS_KEY" in text
    assert client_of("admin").get(cast.team.get_absolute_url()).status_code == 200
    with pytest.raises(SecretUnavailable, match=f"encrypted with key {secret.key}, and the keys known here are"):
        reveal(team=cast.team, names=["HF_TOKEN"])
    with pytest.raises(CommandError, match=rf"lab/HF_TOKEN \(key {secret.key}\)"):
        call_command("rotate_secrets", stdout=io.StringIO())


def test_a_damaged_value_is_told_from_a_missing_key(cast: Cast) -> None:
    secret = set_secret(team=cast.team, name="HF_TOKEN", value=VALUE, user=None)
    secret.stored = secret.stored[:-6] + "AAAA=="
    secret.save()
    with pytest.raises(SecretUnavailable, match="it is damaged"):
        reveal(team=cast.team, names=["HF_TOKEN"])
