"""Writes about a team's secrets, and the one read of their values."""

import json
from collections.abc import Iterable

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from webapp.accounts.models import User
from webapp.core import encryption
from webapp.core.counts import counted
from webapp.teams.models import Team, TeamSecret
from webapp.teams.secret_names import check_name

SHORTEST, LONGEST = 8, 16_384


class SecretUnavailable(Exception):
    """A run cannot get a secret that it names; the text says which and what to do."""


@sensitive_variables("value", "stored")
@transaction.atomic
def set_secret(*, team: Team, name: str, value: str, user: User | None) -> TeamSecret:
    """Adds the secret or replaces its value. Raises ValidationError for a name or a value that cannot be one."""
    check_name(name)
    value = value.strip()
    if not SHORTEST <= len(value) <= LONGEST or "\0" in value:
        raise ValidationError(
            f"The value has {counted(len(value), 'character')}; expected {SHORTEST} to {LONGEST}. A shorter one could not be "
            "kept out of logs without taking ordinary text with it.",
            code="secret_value",
        )
    now = timezone.now()
    stored, key = encryption.encrypt(json.dumps([team.pk, name, value]))
    secret, _made = TeamSecret.objects.update_or_create(
        team=team,
        name=name,
        defaults={"stored": stored, "key": key, "changed_at": now, "changed_by": user},
        create_defaults={
            "stored": stored, "key": key, "changed_at": now, "changed_by": user, "created_by": user,
        },
    )  # fmt: skip
    return secret


@transaction.atomic
def delete_secret(*, team: Team, name: str) -> None:
    """Runs that name it cannot be started or resumed any more. An unknown name raises TeamSecret.DoesNotExist."""
    TeamSecret.objects.get(team=team, name=name).delete()


@sensitive_variables()
def reveal(*, team: Team, names: Iterable[str]) -> dict[str, str]:
    """The values by name, for the process that is about to start. Raises SecretUnavailable."""
    rows = {secret.name: secret for secret in TeamSecret.objects.filter(team=team, name__in=tuple(names))}
    values = {}
    for name in names:
        if name not in rows:
            raise SecretUnavailable(
                f"the team {team} has no secret {name}; an admin can add it again in the team's settings, or duplicate "
                "the run and leave it out of its secrets"
            )
        try:
            owner, called, value = json.loads(encryption.decrypt(rows[name].stored, rows[name].key))
        except encryption.KeyMissing as error:
            raise SecretUnavailable(f"the secret {name} of the team {team} cannot be decrypted: {error}") from None
        if (owner, called) != (team.pk, name):
            raise SecretUnavailable(f"the secret {name} of the team {team} holds another one's value; store it again")
        values[name] = value
    return values


def note_use(*, team: Team, names: Iterable[str], run: str, project: str) -> None:
    """Remembers which run got the secrets."""
    TeamSecret.objects.filter(team=team, name__in=tuple(names)).update(
        last_used_at=timezone.now(), last_run=run, last_project=project
    )


@sensitive_variables()
@transaction.atomic
def rotate(*, batch: int = 200) -> tuple[int, list[TeamSecret]]:
    """Encrypts under the first key whatever stands under another one: how many were, and those whose key is missing."""
    newest = encryption.fingerprints()[0]
    done, unreadable = 0, []
    rows = TeamSecret.objects.select_for_update(of=("self",)).select_related("team").exclude(key=newest)
    for secret in rows.order_by("pk").iterator(batch):
        try:
            secret.stored, secret.key = encryption.encrypt(encryption.decrypt(secret.stored, secret.key))
        except encryption.KeyMissing:
            unreadable.append(secret)
            continue
        secret.save(update_fields=["stored", "key"])
        done += 1
    return done, unreadable
