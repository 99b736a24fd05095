"""Team secrets on their way to a trainer, and what keeps them, and tokens written by mistake, out of everything else.

A configuration holds names only. The values are decrypted when the process is about to start, stand in its environment
and in this one's memory, and are taken out of whatever the trainer wrote: its own writers do that first
(`trainer.contract.redaction`), the reading of its events does it again, and `scrub` goes over its files once it has left.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from django.views.decorators.debug import sensitive_variables

from trainer.contract.config import Problem
from trainer.contract.redaction import Redactor
from webapp.runs.models import Run
from webapp.runs.storage import attempt_uri, path_of
from webapp.teams.models import Team
from webapp.teams.secret_services import SecretUnavailable, note_use, reveal
from webapp.teams.selectors import secret_names

log = logging.getLogger(__name__)

SCRUBBED = ("log.txt", "events.jsonl")
_CHUNK = 1 << 20
TOKENS = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|(?:AKIA|ASIA)[A-Z0-9]{16}|gh[pousr]_[A-Za-z0-9]{30,}"
    r"|github_pat_[A-Za-z0-9_]{30,}|xox[abeoprs]-[A-Za-z0-9-]{10,}|glpat-[A-Za-z0-9_-]{20,}"
    r"|AIza[A-Za-z0-9_-]{35}|eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
)
"""Access tokens that their makers gave a form of their own."""


def problems_with_names(team: Team, config: Mapping[str, Any]) -> list[Problem]:
    """The secrets that a configuration names and the team does not have, or no longer."""
    known = secret_names(team)
    problems = []
    for position, name in enumerate(config.get("secrets") or ()):
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none yet"
            text = f"the team has no secret {name}; {has}. An admin can add it in the team's settings"
            problems.append(Problem(f"secrets.{position}", text))
    return problems


def problems_with_secrets(team: Team, config: Mapping[str, Any]) -> list[Problem]:
    """What speaks against launching a resolved configuration in the team: names that it has no secret of, and tokens
    written out in a setting.
    """
    problems = problems_with_names(team, config)
    for path in _tokens(config, ""):
        text = "holds what looks like an access token; store it as a secret of the team and name it in secrets instead"
        problems.append(Problem(path, text))
    return problems


def _tokens(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, str):
        if TOKENS.search(value):
            yield path
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if TOKENS.search(str(key)):
                # The path would repeat it.
                yield path
            else:
                yield from _tokens(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            yield from _tokens(item, f"{path}.{position}")


@sensitive_variables()
def given_to(run: Run) -> dict[str, str]:
    """The values that the run's configuration names, for the process that is about to start. Raises SecretUnavailable."""
    names = list(run.config.get("secrets") or ())
    if not names:
        return {}
    project = run.project
    values = reveal(team=project.team, names=names)
    note_use(team=project.team, names=names, run=run.pk, project=project.slug)
    return values


def redactor_of(run_id: str) -> Redactor:
    """What takes the run's secrets out of texts: those of them that can still be had."""
    run = Run.objects.select_related("project__team").get(pk=run_id)
    values: dict[str, str] = {}
    for name in run.config.get("secrets") or ():
        try:
            values |= reveal(team=run.project.team, names=[name])
        except SecretUnavailable as error:
            log.warning("Run %s: what its trainer wrote cannot be searched for a secret: %s", run_id, error)
    return Redactor(values)


def scrub(run_id: str, number: int, redact: Redactor) -> None:
    """Stars out what the trainer, a child of it or a library in C wrote past its own redaction. Lengths stay as they are,
    because byte offsets of the events are stored. For an attempt whose supervisor has left.
    """
    if not redact:
        return
    for name in SCRUBBED:
        path = path_of(attempt_uri(run_id, number, name))
        if path.is_file() and not path.is_symlink():
            _scrub(path, redact)


def _scrub(path: Path, redact: Redactor) -> None:
    with path.open("r+b") as file:
        at = 0
        while data := file.read(_CHUNK + redact.longest):
            masked = redact.masked(data)
            if masked != data:
                file.seek(at)
                file.write(masked)
            # The next piece begins early enough that no value is cut in two.
            at += _CHUNK
            file.seek(at)
