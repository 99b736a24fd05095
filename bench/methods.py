"""What each method costs beside plain GRPO: CPU seconds an iteration, on the demo's base checkpoint.

All methods and GRPO take turns in one process, an iteration each, with the demo's GRPO configuration at a learning rate of 0,
so that all of them sample from the same policy and differ by what they do alone. The first iteration of each is warm-up. What a
method samples beyond GRPO (more tokens) stands beside the ratio. A method that does not run on this task says why.

    python bench/methods.py --rounds 8
    python bench/methods.py --only f-grpo sps

One JSON line a method: median CPU seconds of an iteration over GRPO's, mean over GRPO's (phases differ), tokens over GRPO's.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from trainer.contract.config import InvalidConfig  # noqa: E402
from trainer.contract.presets import PRESETS  # noqa: E402
from trainer.core.errors import ConfigError  # noqa: E402
from trainer.methods import all_methods, resolve  # noqa: E402

ASSETS = ROOT / "trainer" / "assets"
PLAIN = "grpo"


def document(slug: str) -> dict[str, Any]:
    """The demo's GRPO run without evaluations, frozen, with the method over a base that it takes."""
    out: dict[str, Any] = json.loads((ASSETS / "demo-grpo.json").read_text())
    out["policy"]["checkpoint"] = str(ASSETS / "countdown4-base")
    out["evaluation"] |= {"every": 0, "problems": 0, "final_problems": 0}
    out["optimizer"]["learning_rate"] = 0.0
    out["budget"]["iterations"] = 100_000
    if slug != PLAIN:
        bases = set(all_methods()[slug].bases or PRESETS)
        out["methods"] = [{"slug": slug}]
        out["algorithm"]["preset"] = PLAIN if PLAIN in bases else sorted(bases)[0]
    return out


def runner(slug: str, out: Path) -> Callable[[], tuple[float, int]]:
    """A function that does one iteration and tells its CPU seconds and sampled tokens."""
    from trainer.core.context import Context
    from trainer.data.task import problems
    from trainer.data.tasks import make_task
    from trainer.loop import train as loop
    from trainer.loop.assemble import assemble, settled
    from trainer.loop.emitter import EventWriter
    from trainer.loop.run import add_reference, fresh_state
    from trainer.loop.schedule import Schedule
    from trainer.rollout.torch_sampler import TorchSampler

    config: Any = resolve(document(slug))
    task = make_task(config.task.name, config.task.params)
    state = fresh_state(config, ASSETS)
    add_reference(state, config, ASSETS)
    ctx = Context(
        config=config,
        task=task,
        draw_pool=lambda: problems(task, "train", config.task.problems, seed=config.task.seed),
        state=state,
        sampler=TorchSampler(state.policies["policy"].policy.model),
        emit=EventWriter(out / f"{slug}.jsonl", run="bench", attempt=1),
        should_stop=lambda: False,
    )
    config = settled(config, ctx)
    parts = assemble(config)
    nothing = Schedule(
        save=lambda final: None, keep_rollouts=lambda g, a: None, library=None, validation=None, test=None
    )

    def once() -> tuple[float, int]:
        tokens, began = state.counters.sampled_tokens, time.process_time()
        loop.iterate(config, parts, ctx, nothing)
        return time.process_time() - began, state.counters.sampled_tokens - tokens

    return once


def main() -> None:
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=8, help="iterations of each that count")
    parser.add_argument("--only", nargs="*", help="slugs of methods")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runners: dict[str, Callable[[], tuple[float, int]]] = {}
    found: dict[str, list[tuple[float, int]]] = {}
    with tempfile.TemporaryDirectory() as out:
        for slug in (PLAIN, *(args.only or all_methods())):
            try:
                runners[slug] = runner(slug, Path(out))
                runners[slug]()
            except (InvalidConfig, ConfigError) as refused:
                runners.pop(slug, None)
                print(json.dumps({"method": slug, "refused": str(refused)}), flush=True)
        for _ in range(args.rounds):
            for slug, once in runners.items():
                found.setdefault(slug, []).append(once())
    plain = found.pop(PLAIN)
    cpu, tokens = (statistics.median(values) for values in zip(*plain, strict=True))
    mean = statistics.fmean(seconds for seconds, _ in plain)
    print(json.dumps({"method": PLAIN, "cpu_seconds": round(cpu, 3), "tokens": round(tokens), "rounds": args.rounds}))
    for slug, rows in found.items():
        line = {
            "method": slug,
            "median": round(statistics.median(s for s, _ in rows) / cpu, 3),
            "mean": round(statistics.fmean(s for s, _ in rows) / mean, 3),
            "tokens": round(statistics.fmean(t for _, t in rows) / tokens, 3),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
