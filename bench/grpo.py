"""Our trainer beside TRL's GRPOTrainer: completion tokens per CPU second of whole steps, and of both halves.

The same random 0.5 M Qwen2, prompts, reward, group size and optimiser; GRPO, on-policy, no KL, fp32, one thread, AdamW.
The sides take turns, a process each, `--rounds` times; the first step of a process is warm-up; the best round of each side
counts. CPU seconds are those of the process. TRL needs an environment of its own (tests/anchor/requirements.txt).

    python bench/grpo.py --peer build/anchor/bin/python
    python bench/grpo.py --peer … --rows 16 --rounds 5

One JSON line a case: ratios above 1 say that ours is faster; memory is the process's peak over what it had before the model.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from grpo_case import LEARNING_RATE, Case, peak_mb, prompts, reward, write_model  # noqa: E402

CASES = [
    Case(rows=16),
    Case(rows=64),
    Case(rows=256),
    Case(rows=64, prompt=40, new_tokens=50),
    Case(rows=64, prompt=200, new_tokens=50),
]


def ours(folder: str, case: Case) -> dict[str, Any]:
    """Steps of the real loop on the case; see `grpo_trl.py` for the peer's."""
    import torch

    from trainer.contract.config import parse_config
    from trainer.core.context import Context
    from trainer.core.types import Group, Prompt
    from trainer.data.tasks import make_task
    from trainer.loop import train as loop
    from trainer.loop.assemble import assemble
    from trainer.loop.emitter import EventWriter
    from trainer.loop.run import fresh_state
    from trainer.loop.schedule import Schedule
    from trainer.rollout.torch_sampler import TorchSampler

    class Share:
        """The case's reward."""

        weights = {"share": 1.0}

        def score(self, group: Group, ctx: Context) -> list[dict[str, float | None]]:
            return [{"share": reward(t.text, str(group.prompt.answer))} for t in group.trajectories]

    torch.set_num_threads(1)
    before = peak_mb()
    config: Any = parse_config(
        {
            "kind": "rl", "policy": {"checkpoint": folder}, "evaluation": {"problems": 0, "final_problems": 0, "every": 0},
            "algorithm": {"preset": "grpo", "prompts_per_iteration": case.rows // case.group,
                          "num_generations": case.group, "kl_coef": 0.0, "measure_kl": False},
            "sampling": {"max_new_tokens": case.new_tokens}, "optimizer": {"learning_rate": LEARNING_RATE},
            "budget": {"iterations": case.steps + 1},
        }
    )  # fmt: skip
    task = make_task("parity", {})
    pool: list[Prompt] = [task.make_prompt([text], text, answer, {"chance": None}) for text, answer in prompts(case)]
    state = fresh_state(config, Path(folder))
    parts = assemble(config)
    parts.rewards = [Share()]
    drawing = [0.0]
    rollout = loop._rollout

    def timed(*args: Any) -> Any:
        began = time.process_time()
        try:
            return rollout(*args)
        finally:
            drawing[0] += time.process_time() - began

    loop._rollout = timed
    steps = []
    with tempfile.TemporaryDirectory() as out:
        ctx = Context(
            config=config, task=task, draw_pool=lambda: pool, state=state,
            sampler=TorchSampler(state.policies["policy"].policy.model),
            emit=EventWriter(Path(out) / "events.jsonl", run="bench", attempt=1), should_stop=lambda: False,
        )  # fmt: skip
        nothing = Schedule(
            save=lambda final: None, keep_rollouts=lambda g, a: None, library=None, validation=None, test=None
        )
        for _ in range(case.steps + 1):
            tokens, drawing[0], began = state.counters.sampled_tokens, 0.0, time.process_time()
            loop.iterate(config, parts, ctx, nothing)
            spent = time.process_time() - began
            steps.append({"tokens": state.counters.sampled_tokens - tokens, "cpu": spent, "drawing": drawing[0]})
    return {"steps": steps[1:], "before_mb": before, "peak_mb": peak_mb(), "gflops": matmul_gflops()}


def matmul_gflops(size: int = 512) -> float:
    """What fp32 products of square matrices reach here by the fastest library that torch has, GFLOP per CPU second."""
    import torch

    from trainer.policy.products import linear

    a, b = torch.randn(size, size), torch.randn(size, size)
    best = 0.0
    for product in (torch.mm, linear) * 10:
        began = time.process_time()
        for _ in range(5):
            product(a, b)
        best = max(best, 5 * 2 * size**3 / (time.process_time() - began) / 1e9)
    return best


def figures(side: dict[str, Any]) -> dict[str, float]:
    """Tokens per CPU second of a side's steps together."""
    tokens = sum(s["tokens"] for s in side["steps"])
    cpu, drawing = (sum(s[k] for s in side["steps"]) for k in ("cpu", "drawing"))
    return {"whole": tokens / cpu, "rollout": tokens / drawing, "training": tokens / (cpu - drawing)}


def rounds(peer: str, folder: str, case: Case, count: int) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(ours, theirs) of each round, in turns."""
    arguments = [folder, json.dumps(asdict(case))]
    for _ in range(count):
        both = []
        for command in ([sys.executable, str(HERE / "grpo.py"), "--side"], [peer, str(HERE / "grpo_trl.py")]):
            done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
            if done.returncode:
                raise SystemExit(f"{command[0]} {command[1]} failed:\n{done.stderr[-3000:]}")
            both.append(json.loads(done.stdout.splitlines()[-1]))
        yield both[0], both[1]


def measure(peer: str, case: Case, count: int) -> dict[str, Any]:
    """The line of one case."""
    with tempfile.TemporaryDirectory() as folder:
        parameters = write_model(Path(folder))
        found = list(rounds(peer, folder, case, count))
    best = [max((figures(pair[side]) for pair in found), key=lambda f: f["whole"]) for side in (0, 1)]
    memory = [min(pair[side]["peak_mb"] - pair[side]["before_mb"] for pair in found) for side in (0, 1)]
    flops = 8 * parameters * best[0]["whole"] / 1e9
    return {
        **asdict(case), "parameters": parameters,
        **{f"ratio_{k}": round(best[0][k] / best[1][k], 2) for k in best[0]},
        **{f"ours_{k}": round(v) for k, v in best[0].items()},
        **{f"trl_{k}": round(v) for k, v in best[1].items()},
        "share_of_matmul_bound": round(flops / max(pair[0]["gflops"] for pair in found), 2),
        "ours_mb": round(memory[0]), "trl_mb": round(memory[1]), "rounds": count, "versions": found[0][1]["versions"],
    }  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--side"]:
        print(json.dumps(ours(sys.argv[2], Case(**json.loads(sys.argv[3])))))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True, help="python of an environment with TRL")
    parser.add_argument("--rows", type=int, nargs="*", help="only cases with these numbers of rows")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    for case in CASES:
        if not args.rows or case.rows in args.rows:
            print(json.dumps(measure(args.peer, case, args.rounds)), flush=True)


if __name__ == "__main__":
    main()
