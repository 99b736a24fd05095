"""Start-up checks: what is wrong and what to set. `python manage.py check` runs them, as does every other command."""

import os
import secrets
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.files.storage import storages

from webapp.core.file_storages import FileStore

OLDEST_SQLITE = (3, 35, 0)


@register("files")
def data_folder(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """The data folder must be writable, and the keys in it nobody else's."""
    folder = Path(settings.DATA_DIR)
    if not os.access(folder, os.W_OK | os.X_OK):
        return [
            Error(
                f"The data folder {folder} is not writable for this user.",
                hint="Change its owner, or set UNSQUEEZE_DATA to a folder that is.",
                id="unsqueeze.E001",
            )
        ]
    keys = [folder / "secret_key", folder / "secrets_key"]
    return [
        Warning(
            f"{key} can be read by other users (mode {key.stat().st_mode & 0o777:o}).",
            hint=f"Run: chmod 600 {key}",
            id="unsqueeze.W002",
        )
        for key in keys
        if key.exists() and key.stat().st_mode & 0o077
    ]


@register("database_version")
def sqlite_version(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """SQLite must know `RETURNING`, which the claiming of work relies on."""
    uses_sqlite = settings.DATABASES["default"]["ENGINE"].endswith("sqlite3")
    if uses_sqlite and sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        return [
            Error(
                f"SQLite is {sqlite3.sqlite_version}; {wanted} or later is needed.",
                hint="Use a newer Python build, or set UNSQUEEZE_DATABASE_URL to a PostgreSQL database.",
                id="unsqueeze.E003",
            )
        ]
    return []


@register("broker")
def broker_folder(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """With the filesystem transport, its folder must be writable."""
    folder = settings.CELERY_BROKER_TRANSPORT_OPTIONS.get("data_folder_in")
    if folder and not os.access(folder, os.W_OK | os.X_OK):
        return [
            Error(
                f"The broker's folder {folder} is not writable for this user.",
                hint="Change its owner, or set UNSQUEEZE_BROKER_URL to a Redis server.",
                id="unsqueeze.E004",
            )
        ]
    return []


@register("static", deploy=True)
def static_manifest(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """Pages need the collected static files, except with UNSQUEEZE_DEBUG. Part of `check --deploy` only: set-up
    commands come before collecting.
    """
    manifest = Path(settings.STATIC_ROOT) / "staticfiles.json"
    uses_manifest = "StaticStorage" in settings.STORAGES["staticfiles"]["BACKEND"]
    if not settings.DEBUG and uses_manifest and not manifest.exists():
        return [
            Warning(
                f"The static files are not collected ({manifest} is missing), so pages cannot be shown.",
                hint="Run: python manage.py collectstatic --no-input",
                id="unsqueeze.W005",
            )
        ]
    return []


@register("storage", deploy=True)
def file_storage(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """The file storage writes, lists, reads and removes a small file. Part of `check --deploy` only, because it goes
    over the network where the storage is a bucket.
    """
    store = cast(FileStore, storages["files"])
    uri, data = f"probe/{secrets.token_hex(8)} é", b"unsqueeze"
    step = "written"
    try:
        store.write(uri, data)
        step = "listed"
        if [file.uri for file in store.walk("probe") if file.uri == uri] != [uri]:
            raise OSError("what was just written is not in the list")
        step = "read"
        if b"".join(store.chunks(uri)) != data:
            raise OSError("what was read is not what was written")
        step = "removed"
        store.remove(uri)
    except OSError as error:
        hint = "Look at UNSQUEEZE_STORAGE_URL, the UNSQUEEZE_S3_ variables and the bucket's rights."
        if store.local:
            hint = "Change the folder's owner, or set UNSQUEEZE_FILES to a folder that this user may write."
        text = f"A file cannot be {step} in the file storage, {store.describe()}: {error}"
        return [Error(text, hint=hint, id="unsqueeze.E006")]
    return []
