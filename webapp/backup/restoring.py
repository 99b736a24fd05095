"""An installation from a backup: first the rows as the version that made it knew them, then the migrations since."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.db import connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.migrations.recorder import MigrationRecorder

from webapp.accounts.models import User
from webapp.backup import rows
from webapp.backup.archive import BadBackup, Reader, opened
from webapp.core.counts import counted
from webapp.core.file_storages import CHUNK
from webapp.launch.endings import SCHEDULER, end
from webapp.launch.outcome import Again, Outcome
from webapp.launch.secrets import redactor_of
from webapp.launch.tail import drain
from webapp.runs import services as runs
from webapp.runs.models import Attempt, Run
from webapp.runs.states import ACTIVE, RunState
from webapp.runs.storage import checked, files
from webapp.teams.models import Team

Say = Callable[[str], None]


class NotEmpty(Exception):
    """Something is here already; nothing was touched."""


def restore(path: Path, *, replace: bool, say: Say) -> dict[str, Any]:
    """Makes this installation what the backup says; its manifest. Nothing is touched before the whole file was verified.

    The database is replaced at once, at the end: what fails before that leaves the old one. Raises BadBackup, NotEmpty,
    OSError.
    """
    with opened(path) as backup:
        _check_known(backup.manifest)
        if not replace:
            _check_empty(backup)
        _put_files(backup, say)
        with _fresh_database() as target:
            _load(backup, target, say)
        if replace and backup.manifest["files"] == "included":
            _remove_others(backup)
        _put_keys(backup, say)
    _end_active(backup.manifest, say)
    return backup.manifest


def _check_known(manifest: dict[str, Any]) -> None:
    """Raises BadBackup for one from a newer version."""
    known = MigrationExecutor(connection).loader.disk_migrations
    unknown = [f"{app}.{name}" for app, name in map(tuple, manifest["migrations"]) if (app, name) not in known]
    if unknown:
        raise BadBackup(
            f"the backup comes from a newer version ({manifest['version']}): this one does not know its migrations "
            f"{', '.join(unknown[:5])}; install that version or a newer one, then restore"
        )


def _check_empty(backup: Reader) -> None:
    """Raises NotEmpty where somebody has worked already."""
    tables = connection.introspection.table_names()
    used = [m._meta.verbose_name_plural for m in (User, Team, Run) if m._meta.db_table in tables and m.objects.exists()]
    if used:
        raise NotEmpty(
            f"there are {', '.join(map(str, used))} in the database; --replace puts the backup in their place"
        )
    if backup.names("files/") and (first := next(iter(files().walk("")), None)) is not None:
        raise NotEmpty(
            f"{files().describe()} is not empty (it holds {first.uri}); --replace puts the backup in its place"
        )


@contextmanager
def _fresh_database() -> Iterator[BaseDatabaseWrapper]:
    """An empty database that takes the place of ours when all went well: with SQLite a file beside it, with PostgreSQL
    one transaction.
    """
    if connection.vendor == "sqlite":
        ours = Path(settings.DATABASES["default"]["NAME"])
        draft = ours.with_name(f".{ours.name}.restoring")
        _remove(draft)
        with _default_at(draft):
            yield connection
            with connection.cursor() as cursor:
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        _remove(ours, itself=False)
        os.replace(draft, ours)
        return
    with transaction.atomic():
        with connection.cursor() as cursor:
            there = connection.introspection.table_names(cursor)
            ours_too = connection.introspection.django_table_names(only_existing=True)
            for table in {*ours_too, MigrationRecorder.Migration._meta.db_table} & set(there):
                cursor.execute(f"DROP TABLE {connection.ops.quote_name(table)} CASCADE")
        yield connection


@contextmanager
def _default_at(database: Path) -> Iterator[None]:
    """The default database is this file meanwhile: data migrations need not ask which database they are for."""
    held = connection.settings_dict["NAME"]
    connection.close()
    connection.settings_dict["NAME"] = str(database)
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = held


def _remove(database: Path, *, itself: bool = True) -> None:
    for suffix in ("", "-wal", "-shm") if itself else ("-wal", "-shm"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _load(backup: Reader, target: BaseDatabaseWrapper, say: Say) -> None:
    then = rows.leaves(target, map(tuple, backup.manifest["migrations"]))
    MigrationExecutor(target).migrate(then)
    apps = rows.models_at(target, then)
    with transaction.atomic(using=target.alias):
        if target.vendor == "postgresql":
            # The migrations left them immediate; rows come in no order.
            with target.cursor() as cursor:
                cursor.execute("SET CONSTRAINTS ALL DEFERRED")
        for model in rows.tables(apps):
            # Historical models are named as they were called then, which is how their rows are.
            name = rows.member(model)
            if name in backup.manifest["members"]:
                say(f"{model._meta.label}: {counted(rows.load(model, backup.open(name), target), 'row')}")
        rows.reset_sequences(apps, target)
        target.check_constraints()
    call_command("migrate", database=target.alias, interactive=False, verbosity=0)


def _put_files(backup: Reader, say: Say) -> None:
    names = backup.names("files/")
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "file"
        for name in names:
            with draft.open("wb") as out, backup.open(name) as source:
                while data := source.read(CHUNK):
                    out.write(data)
            files().put(draft, checked(name.removeprefix("files/")))
    if names:
        say(f"files: {len(names)}")


def _remove_others(backup: Reader) -> None:
    wanted = {name.removeprefix("files/") for name in backup.names("files/")}
    for one in list(files().walk("")):
        if one.uri not in wanted:
            files().remove(one.uri)


def _put_keys(backup: Reader, say: Say) -> None:
    if not backup.names("keys.json"):
        return
    keys = backup.json("keys.json")
    for name, text in (("secret_key", keys["secret_key"]), ("secrets_key", "\n".join(keys["secrets_keys"]))):
        path = Path(settings.DATA_DIR) / name
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="ascii") as file:
            file.write(text)
    say("keys: secret_key and secrets_key in the data folder; settings of the environment come before them")


def _end_active(manifest: dict[str, Any], say: Say) -> None:
    """Runs that were going have no worker here: what their trainers had still written is read, and they end as lost, or
    wait for another worker where they may go on by themselves.
    """
    for attempt in Attempt.objects.filter(state__in=ACTIVE, superseded=False):
        held = runs.seize(attempt.pk, beats=attempt.beats)
        if held is None:
            continue
        try:
            drain(held, redact=redactor_of(held.run_id))
        except OSError as error:
            say(f"run {held.run_id}: its events cannot be read: {error}")
        text = f"Restored from a backup of {manifest['made'][:19]} UTC, in which it was going; its worker is not here."
        run = end(held, Outcome(RunState.LOST, text, Again.FREELY), exit_code=None, worker=SCHEDULER)
        say(f"run {run.pk} was going when the backup was made; it is {run.state} now")
