"""What a run leaves behind, files included, in a form in which a stormy run and an undisturbed one can be compared."""

from __future__ import annotations

import hashlib
import io
from typing import Any

from tests.installed.record import record_of
from webapp.rollouts.models import RolloutPart
from webapp.runs.models import Run
from webapp.runs.storage import chunks, read, walk


def whole_record_of(run: Run) -> dict[str, Any]:
    """`record_of`, and beside it the rollouts' own rows, every checkpoint's weights and the final weight files."""
    return {
        **record_of(run),
        "rollout_rows": {str(iteration): digest for iteration, digest in _rollout_rows(run)},
        "checkpoints": {
            str(iteration): weights
            for iteration, weights in run.checkpoints.filter(retired=False).values_list("iteration", "weights_hash")
        },
        "final_files": _final_files(run),
    }


def read_part(uri: str) -> list[dict[str, Any]]:
    """The rows of a Parquet part of the file storage."""
    import pyarrow.parquet as pq

    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(read(uri))).to_pylist()
    return rows


def file_digest(uri: str) -> tuple[int, str]:
    """Size in bytes and SHA-256 of a stored file."""
    digest, size = hashlib.sha256(), 0
    for data in chunks(uri):
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()


def _rollout_rows(run: Run) -> list[tuple[int, str]]:
    parts = RolloutPart.objects.filter(run=run, retired=False).order_by("iteration")
    # repr, because an advantage may be NaN, which equals nothing.
    return [(part.iteration, hashlib.sha256(repr(read_part(part.uri)).encode()).hexdigest()) for part in parts]


def _final_files(run: Run) -> dict[str, str]:
    """Digests of the tensor files; the JSON beside them holds times and paths."""
    final = run.checkpoints.filter(final=True, retired=False, removed_at=None).first()
    if final is None:
        return {}
    files = sorted(file.uri for file in walk(final.uri) if file.uri.endswith(".safetensors"))
    return {uri.removeprefix(f"{final.uri}/"): file_digest(uri)[1] for uri in files}
