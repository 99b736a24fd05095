"""Uploads and versions for tests, made by the parts that make them for people."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from django.core.files.uploadedfile import SimpleUploadedFile

from webapp.datasets import services
from webapp.datasets.models import Dataset, Import, Version
from webapp.datasets.tool import inspect
from webapp.launch.imports import run_waiting
from webapp.projects.models import Project
from webapp.runs import storage

SUMS = [{"question": f"{a}+{b}=", "answer": f"#### {a + b}"} for a in range(12) for b in range(12)]


def as_file(rows: list[dict[str, Any]], name: str = "sums.jsonl") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, "".join(json.dumps(row) + "\n" for row in rows).encode())


def make_upload(project: Project, rows: list[dict[str, Any]] = SUMS, *, name: str = "Sums") -> Import:
    dataset = Dataset.objects.filter(project=project, name=name).first()
    dataset = dataset or services.create_dataset(project=project, name=name, user=None)
    return services.add_upload(dataset=dataset, file=as_file(rows), user=None)


def make_version(project: Project, rows: list[dict[str, Any]] = SUMS, *, name: str = "Sums", **changes: Any) -> Version:
    job = make_upload(project, rows, name=name)
    recognised = inspect(storage.fetch(job.uri), job.filename)["recognised"]
    services.start_import(job=job, mapping={**recognised, **changes})
    assert run_waiting() == 1
    job.refresh_from_db()
    assert job.version is not None, job.message
    return job.version


def bare_version(project: Project) -> Version:
    """A version as a row, with a small file that nobody parses: for tests of who may see what."""
    dataset, _made = Dataset.objects.get_or_create(project=project, name="Bare")
    number = dataset.versions.count() + 1
    uri = f"datasets/{project.pk}/bare/rows.parquet"
    storage.write(uri, b"PAR1")
    lengths = {"count": 1, "min": 1, "max": 1, "mean": 1.0, "median": 1.0, "p90": 1.0, "p99": 1.0,
               "longest": {"file": "f", "line": 1}, "histogram": [{"from": 0, "to": 15, "count": 1}]}  # fmt: skip
    none: dict[str, Any] = {"count": 0, "examples": []}
    report = {
        "rows": 1, "splits": {"train": 1, "validation": 0, "test": 0}, "seconds": 1.0,
        "problems_by_split": {"train": 1, "validation": 0, "test": 0},
        "broken": none, "empty_gold": none, "gold_check": {"failed": none, "decided_by": {"int": 1}}, "answer_types": {"int": 1},
        "duplicates": {"exact": 0, "normalised": 0, "conflicting": 0, "dropped": 0, "examples": []}, "moved_between_splits": 0,
        "completions": 0, "prompt_chars": lengths, "completion_chars": None, "characters": {"1": 1}, "overlaps": [],
    }  # fmt: skip
    return Version.objects.create(
        dataset=dataset, number=number, content_hash=f"{number:064d}", uri=uri, sha256=hashlib.sha256(b"PAR1").hexdigest(),
        size_bytes=4, rows=1, mapping={},
        report=report, filename="f.jsonl",
    )  # fmt: skip
