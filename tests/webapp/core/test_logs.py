"""What servers log holds no credentials, whoever put them into the message."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client, RequestFactory
from django.views.debug import get_exception_reporter_filter

from tests.conftest import Cast
from webapp.core.logs import Formatter, without_credentials


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("connect to redis://:pw-1@host:6379/0 failed", "connect to redis://:[hidden]@host:6379/0 failed"),
        ("postgresql://me:p:w/d@db/x", "postgresql://me:[hidden]@db/x"),
        ("host=db user=me password=pw-1 dbname=x", "host=db user=me password=[hidden] dbname=x"),
        ("password='p w' dbname=x", "password=[hidden] dbname=x"),
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [hidden]"),
        ("{'Authorization': 'Basic dXNlcjpwdw=='}", "{'Authorization': 'Basic [hidden]'}"),
        ("GET /api/v1/runs?token=abcdef&x=1", "GET /api/v1/runs?token=[hidden]&x=1"),
        ("{'password': 'p w', 'x': 1}", "{'password': [hidden], 'x': 1}"),
        ("Cookie: unsqueeze_session=abc123; theme=dark", "Cookie: unsqueeze_session=[hidden]; theme=dark"),
        ("got hf_abcdefghijklmnop", "got [hidden]"),
        ("key AKIAIOSFODNN7EXAMPLE.", "key [hidden]."),
        ("sampled_tokens=120, tokens: 24, http://host:8000/p", "sampled_tokens=120, tokens: 24, http://host:8000/p"),
    ],
)
def test_credentials_are_hidden_and_the_rest_is_not(
    text: str, shown: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The database that the tests run on may have a password that stands in these lines.
    monkeypatch.setitem(settings.DATABASES["default"], "PASSWORD", "")
    assert without_credentials(text) == shown


def test_a_traceback_shows_no_password(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.DATABASES["default"], "PASSWORD", "s3cret/of the database")
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(Formatter("{message}", style="{"))
    try:
        raise ConnectionError("FATAL: s3cret/of the database, or s3cret%2Fof%20the%20database, was refused")
    except ConnectionError as error:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, "lost %s", ("s3cret/of the database",), None)
        record.exc_info = (type(error), error, error.__traceback__)
    handler.emit(record)
    assert "s3cret" not in out.getvalue()
    assert "lost [hidden]\nTraceback" in out.getvalue()
    assert "ConnectionError: FATAL: [hidden], or [hidden], was refused" in out.getvalue()


def test_the_error_page_hides_addresses_with_passwords(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.CELERY_BROKER_URL = "redis://:pw-of-the-broker@host"
    monkeypatch.setitem(settings.DATABASES["default"], "PASSWORD", "pw-of-the-database")
    shown = repr(get_exception_reporter_filter(RequestFactory().get("/")).get_safe_settings())
    assert "pw-of-the" not in shown


@pytest.mark.django_db
def test_a_refusal_is_a_line_and_a_fault_a_traceback(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(Formatter("{message}", style="{"))
    [filter_] = next(h for h in logging.getLogger().handlers if h.filters).filters
    handler.addFilter(filter_)
    logging.getLogger().addHandler(handler)
    client = Client(raise_request_exception=False)
    client.force_login(cast["viewer"])
    here = f"/p/{cast.team.slug}/{cast.project.slug}"
    try:
        assert client.get(f"{here}/launch/").status_code == 403
        assert client.get("/", headers={"host": "an odd name"}).status_code == 400
        refused = out.getvalue()
        monkeypatch.setattr("webapp.runlist.views.render", lambda *args, **kwargs: 1 / 0)
        assert client.get(f"{here}/runs/").status_code == 500
    finally:
        logging.getLogger().removeHandler(handler)
    assert "launch" in refused
    assert "Traceback" not in refused
    assert "ZeroDivisionError" in out.getvalue()


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (
            ["-m", "celery", "-A", "webapp.config", "inspect", "ping", "--timeout", "1"],
            {"UNSQUEEZE_BROKER_URL": "redis://:pw-of-the-broker@127.0.0.1:1/0"},
        ),
        (
            ["manage.py", "migrate"],
            {"UNSQUEEZE_DATABASE_URL": "postgres://me:pw-of-the-database@127.0.0.1:1/x?connect_timeout=1"},
        ),
    ],
    ids=["celery", "migrate"],
)
def test_a_server_that_is_away_is_told_without_its_password(
    command: list[str], extra: dict[str, str], tmp_path: Path
) -> None:
    root = Path(__file__).resolve().parents[3]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("UNSQUEEZE_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, *command], cwd=root, env={**kept, "UNSQUEEZE_DATA": str(tmp_path), **extra},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    told = done.stdout + done.stderr
    assert "127.0.0.1" in told
    assert "pw-of-the" not in told
