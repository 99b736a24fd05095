"""The command line of the RL core: a verb for each run kind, and lists for people and programs.

On a terminal a progress bar, otherwise JSON lines. Exit codes are those of `trainer.contract.exit_codes`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainer.contract.exit_codes import MEANING, ExitCode


def main(argv: Sequence[str] | None = None) -> int:
    """Parses ``argv`` and returns the exit code."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    handler: Callable[[argparse.Namespace], int] = arguments.handler
    return int(handler(arguments))


def _parser() -> argparse.ArgumentParser:
    codes = "\n".join(f"  {int(c):3d}  {text}" for c, text in MEANING.items())
    parser = argparse.ArgumentParser(
        prog="python -m trainer",
        description="Train and evaluate reasoning policies with reinforcement learning.",
        epilog=f"exit codes of runs:\n{codes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    run = verbs.add_parser("run", help="run a configuration (kind sft, rl or evaluate)")
    run.add_argument("config", type=Path, help="JSON file; `schema` prints what it may hold")
    run.add_argument("--out", type=Path, required=True, help="run folder; made if missing")
    _attempt_options(run)
    run.set_defaults(handler=_run)
    resume = verbs.add_parser("resume", help="go on from a run folder's newest complete checkpoint")
    resume.add_argument("run", type=Path, help="run folder of an earlier `run`")
    _attempt_options(resume)
    resume.set_defaults(handler=_resume)
    evaluate = verbs.add_parser("evaluate", help="measure a checkpoint on a task's test problems")
    evaluate.add_argument("checkpoint", help="policy or checkpoint folder")
    evaluate.add_argument("--task", default="countdown", help="task name (default: %(default)s)")
    evaluate.add_argument("--params", type=json.loads, default={}, help="task parameters as JSON")
    evaluate.add_argument("--n", type=int, default=64, help="samples per problem (default: %(default)s)")
    evaluate.add_argument("--problems", type=int, default=200, help="test problems (default: %(default)s)")
    evaluate.add_argument("--temperature", type=float, default=1.0, help="sampling temperature (default: %(default)s)")
    evaluate.add_argument("--max-new-tokens", type=int, default=24, help="token limit (default: %(default)s)")
    evaluate.add_argument("--out", type=Path, help="keep the events in this run folder (default: a temporary one)")
    evaluate.set_defaults(handler=_evaluate)
    for name, handler, text in (
        ("methods", _methods, "list methods and base algorithms"),
        ("tasks", _tasks, "list tasks and their parameters"),
        ("schema", _schema, "print the JSON schema of configurations"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.set_defaults(handler=handler)
    return parser


def _attempt_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--attempt", type=int, help="attempt number (default: one more than the newest)")
    verb.add_argument("--files", type=Path, default=Path("."), help="storage root that checkpoint paths refer to")
    verb.add_argument("--parent-fd", type=int, help="stop when this inherited pipe closes")
    verb.add_argument("--quiet", action="store_true", help="write events.jsonl only")


def _echo(quiet: bool) -> Any:
    from trainer.loop.emitter import TerminalEcho, json_echo

    if quiet:
        return None
    return TerminalEcho() if sys.stderr.isatty() else json_echo


def _start(document: Any, run: Path, arguments: argparse.Namespace, *, resume: bool) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from trainer.loop.run import Attempt, next_attempt, run_attempt

    number = arguments.attempt or next_attempt(run)
    folder = run / "attempts" / str(number)
    if (folder / "events.jsonl").exists():
        print(f"{folder} has run already; leave --attempt out or take another number", file=sys.stderr)
        return ExitCode.CONFIG
    attempt = Attempt(
        run=run,
        number=number,
        files=arguments.files,
        resume=resume,
        parent_fd=arguments.parent_fd,
        echo=_echo(arguments.quiet),
    )
    code = run_attempt(document, attempt)
    if code not in (ExitCode.FINISHED, ExitCode.STOPPED):
        with contextlib.suppress(OSError):  # where the disk is full, what is said there must not change the exit code
            print(_last_message(folder / "events.jsonl"), file=sys.stderr, flush=True)
    return code


def _last_message(events: Path) -> str:
    lines = events.read_text().rpartition("\n")[0].splitlines()
    return str(json.loads(lines[-1])["event"].get("message", "")) if lines else ""


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        print(f"cannot read {path}: {error.strerror}", file=sys.stderr)
    except ValueError as error:
        print(f"{path} is not JSON: {error}", file=sys.stderr)
    return None


def _run(arguments: argparse.Namespace) -> int:
    document = _load(arguments.config)
    if document is None or not _valid(document):
        return ExitCode.CONFIG
    return _start(document, arguments.out, arguments, resume=False)


def _valid(document: Any) -> bool:
    from trainer.contract.config import InvalidConfig
    from trainer.methods import resolve

    try:
        resolve(document)
    except InvalidConfig as error:
        for problem in error.problems:
            print(problem, file=sys.stderr)
        return False
    return True


def _resume(arguments: argparse.Namespace) -> int:
    document = _load(arguments.run / "config.json")
    if document is None:
        return ExitCode.CONFIG
    return _start(document, arguments.run, arguments, resume=True)


def _evaluate(arguments: argparse.Namespace) -> int:
    import tempfile

    document = {
        "kind": "evaluate",
        "policy": {"checkpoint": str(Path(arguments.checkpoint).resolve())},
        "task": {"name": arguments.task, "params": arguments.params},
        "sampling": {"max_new_tokens": arguments.max_new_tokens},
        "evaluation": {
            "final_problems": arguments.problems,
            "final_samples": arguments.n,
            "temperature": arguments.temperature,
        },
    }
    if not _valid(document):
        return ExitCode.CONFIG
    with tempfile.TemporaryDirectory() as scratch:
        run = arguments.out or Path(scratch)
        options = argparse.Namespace(attempt=None, files=Path(scratch), parent_fd=None, quiet=not sys.stderr.isatty())
        code = _start(document, run, options, resume=False)
        if code == ExitCode.FINISHED:
            _print_evaluation(run)
    return code


def _print_evaluation(run: Path) -> None:
    from trainer.contract.events import Evaluation, parse_line
    from trainer.contract.intervals import pass_at_k_interval
    from trainer.contract.passk import chance_pass_at_k, k_grid

    newest = max((run / "attempts").iterdir(), key=lambda p: int(p.name))
    events = [parse_line(line).event for line in (newest / "events.jsonl").read_text().splitlines()]
    found = next(e for e in events if isinstance(e, Evaluation))
    assert found.set is not None
    counts = [(p.n, p.c) for p in found.problems]
    chance = [p.chance for p in found.set.problems if p.chance is not None]
    rows = []
    for k in k_grid(found.set.n):
        estimate = pass_at_k_interval(counts, k)
        row = {"k": k, "pass": estimate.value, "lo": estimate.lo, "hi": estimate.hi, "note": estimate.note}
        if len(chance) == len(counts):
            row["chance"] = chance_pass_at_k(chance, k)
        rows.append(row)
    result: dict[str, Any] = {
        "problems": len(counts),
        "n": found.set.n,
        "set": found.set_id,
        "weights": found.weights_hash,
        "token_entropy": found.token_entropy,
        "pass_at_k": rows,
    }
    if not sys.stdout.isatty():
        print(json.dumps(result))
        return
    print(f"{len(counts)} test problems, n = {found.set.n}, set {found.set_id}")
    for row in rows:
        interval = f"[{row['lo']:.3f}, {row['hi']:.3f}]" if row["lo"] is not None else f"({row['note']})"
        chance_text = f"   chance {row['chance']:.3f}" if "chance" in row else ""
        print(f"pass@{row['k']:<4} {row['pass']:.3f} {interval}{chance_text}")


def _methods(arguments: argparse.Namespace) -> int:
    from trainer.contract.presets import PRESETS
    from trainer.methods import all_methods

    rows: list[dict[str, Any]] = [
        {"slug": p.slug, "title": p.title, "paper": p.source, "slots": ["base"], "status": "ready"}
        for p in PRESETS.values()
    ]
    rows += [
        {
            "slug": s.slug,
            "title": s.title,
            "paper": f"arXiv {s.paper.arxiv}: {s.paper.title}",
            "slots": list(s.parts),
            "status": s.status,
            "derived": s.derived,
        }
        for s in all_methods().values()
    ]
    return _print_rows(rows, arguments.json, ("slug", "title", "paper"))


def _tasks(arguments: argparse.Namespace) -> int:
    from trainer.data.tasks import TASKS

    rows = [
        {
            "name": t.name,
            "title": t.title,
            "description": t.description,
            "checker_version": t.checker_version,
            "params": t.Params.model_json_schema(),
        }
        for t in TASKS.values()
    ]
    return _print_rows(rows, arguments.json, ("name", "title", "description"))


def _schema(arguments: argparse.Namespace) -> int:
    from trainer.contract.config import KINDS

    schemas = {kind: model.model_json_schema() for kind, model in KINDS.items()}
    print(json.dumps(schemas, indent=None if arguments.json else 1))
    return 0


def _print_rows(rows: list[dict[str, Any]], as_json: bool, columns: tuple[str, ...]) -> int:
    if as_json:
        print(json.dumps(rows))
    else:
        for row in rows:
            print("  ".join(str(row[c]) for c in columns))
    return 0
