"""Tables as lines of JSON that mean the same on SQLite and on PostgreSQL."""

import base64
import gzip
import json
from collections.abc import Iterable, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from django.apps.registry import Apps
from django.core.management.color import no_style
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.loader import MigrationLoader

BATCH = 1000
Model = type[models.Model]


def leaves(connection: BaseDatabaseWrapper, applied: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The newest of the applied migrations, of each app."""
    graph = MigrationLoader(connection).graph
    there = {key for key in applied if key in graph.nodes}
    later = {parent.key for key in there for parent in graph.node_map[key].parents if parent.key[0] == key[0]}
    return sorted(there - later)


def models_at(connection: BaseDatabaseWrapper, then: list[tuple[str, str]]) -> Apps:
    """The models as they were after these migrations: what the tables look like."""
    return MigrationLoader(connection).project_state(then).apps


def tables(apps: Apps) -> list[Model]:
    """Every model with a table of its own, many-to-many ones included."""
    return [m for m in apps.get_models(include_auto_created=True) if m._meta.managed and not m._meta.proxy]


def member(model: Model) -> str:
    """The name of the model's rows in a backup."""
    return f"rows/{model._meta.label}.jsonl.gz"


def dump(model: Model, using: str, target: Path) -> int:
    """Writes all rows, in the order of their keys; how many. The caller holds the transaction in which they are read."""
    fields = model._meta.local_concrete_fields
    names = [field.attname for field in fields]
    count = 0
    with target.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5, mtime=0, filename="") as file:
        file.write(json.dumps(names).encode() + b"\n")
        for row in model._base_manager.using(using).order_by("pk").values_list(*names).iterator(BATCH):
            file.write(json.dumps([_plain(value) for value in row], ensure_ascii=False).encode() + b"\n")
            count += 1
    return count


def _plain(value: Any) -> Any:
    """What the field's own `to_python` reads back, exactly."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case timedelta():
            return str(value)
        case bytes() | memoryview() | bytearray():
            return base64.b64encode(value).decode("ascii")
        case _:
            return value


def load(model: Model, source: IO[bytes], connection: BaseDatabaseWrapper) -> int:
    """Puts the rows into the model's empty table; how many. The caller holds the transaction."""
    with gzip.open(source, "rt", encoding="utf-8") as lines:
        by_name = {field.attname: field for field in model._meta.local_concrete_fields}
        fields = [by_name[name] for name in json.loads(next(lines))]
        quote = connection.ops.quote_name
        columns = ", ".join(quote(str(field.column)) for field in fields)
        places = ", ".join(["%s"] * len(fields))
        statement = f"INSERT INTO {quote(model._meta.db_table)} ({columns}) VALUES ({places})"
        count = 0
        with connection.cursor() as cursor:
            while batch := list(islice(lines, BATCH)):
                cursor.executemany(statement, [_stored(json.loads(line), fields, connection) for line in batch])
                count += len(batch)
    return count


def _stored(row: list[Any], fields: Sequence["models.Field[Any, Any]"], connection: BaseDatabaseWrapper) -> list[Any]:
    return [
        field.get_db_prep_save(field.to_python(value), connection) for field, value in zip(fields, row, strict=True)
    ]


def reset_sequences(apps: Apps, connection: BaseDatabaseWrapper) -> None:
    """New rows get numbers after those that were put in."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), tables(apps)):
            cursor.execute(statement)
