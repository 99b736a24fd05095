"""Whether this process can do its work."""

import os
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError, connection


def health() -> dict[str, str]:
    """The state of each part in a word: "ok" or what is wrong. Says nothing that an outsider should not know."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        database = "ok"
    except DatabaseError:
        database = "unreachable"
    data = "ok" if os.access(Path(settings.DATA_DIR), os.W_OK) else "not writable"
    return {"database": database, "data": data}
