"""The process in which reasoning-gym's checkers run: {name, level, settings, entry, answer} → the score, or {error}.

They raise on odd text, and run for long on hostile text.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from trainer.rewards.worker import limit_memory, serve

_TUPLES = frozenset({"arc_agi", "rearc"})
"""Generators whose checker compares grids as tuples, which JSON does not have."""


def _tupled(value: Any) -> Any:
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value


def main() -> None:
    """Until the other side closes."""
    limit_memory()
    logging.disable(logging.CRITICAL)
    from trainer.data.reasoning_gym import config_of, dataset_of

    generators: dict[str, Any] = {}

    def reply(request: Any) -> Any:
        name, entry = request["name"], request["entry"]
        try:
            key = json.dumps([name, request["level"], request["settings"]], sort_keys=True)
            if key not in generators:
                config = config_of(name, request["level"], request["settings"], seed=0, size=1)
                generators[key] = dataset_of(name, config)
            if name in _TUPLES:
                entry["metadata"] = {k: _tupled(v) for k, v in entry["metadata"].items()}
            return float(generators[key].score_answer(request["answer"], entry))
        except Exception as error:
            return {"error": type(error).__name__}

    import reasoning_gym  # noqa: F401  loaded before the clock runs

    serve(reply)


if __name__ == "__main__":
    main()
