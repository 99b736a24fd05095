"""The command line of the RL core: a verb for each run kind, and lists for people and programs.

On a terminal a progress bar, otherwise JSON lines. Exit codes are those of `trainer.contract.exit_codes`.
"""

from __future__ import annotations

import argparse
import atexit
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
    arguments.argv = list(sys.argv[1:] if argv is None else argv)
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
    source = resume.add_mutually_exclusive_group()
    source.add_argument(
        "--checkpoint",
        type=Path,
        action="append",
        metavar="DIR",
        help="checkpoint to go on from, relative to the run folder; given several times, the first that is whole "
        "(default: the newest, and an error when it is damaged)",
    )
    source.add_argument("--from-start", action="store_true", help="begin again, whatever was saved")
    _attempt_options(resume)
    resume.set_defaults(handler=_resume)
    evaluate = verbs.add_parser("evaluate", help="measure a checkpoint on a task's test problems")
    evaluate.add_argument("checkpoint", help="policy or checkpoint folder, .gguf file, or org/name on the hub")
    evaluate.add_argument("--task", default="countdown", help="task name (default: %(default)s)")
    evaluate.add_argument("--params", type=json.loads, default={}, help="task parameters as JSON")
    evaluate.add_argument("--n", type=int, default=64, help="samples per problem (default: %(default)s)")
    evaluate.add_argument("--problems", type=int, default=200, help="test problems (default: %(default)s)")
    evaluate.add_argument("--temperature", type=float, default=1.0, help="sampling temperature (default: %(default)s)")
    evaluate.add_argument("--max-new-tokens", type=int, default=24, help="token limit (default: %(default)s)")
    evaluate.add_argument("--files", type=Path, default=Path("."), help="storage root that an adapter's base refers to")
    evaluate.add_argument("--out", type=Path, help="keep the events in this run folder (default: a temporary one)")
    evaluate.set_defaults(handler=_evaluate)
    study = verbs.add_parser("study", help="run a study: all arms with all seeds, evaluated alike, and its verdict")
    study.add_argument("study", help="slug (`methods` lists them) or JSON file")
    study.add_argument("--out", type=Path, help="folder of the study; the same command goes on after a stop")
    study.add_argument("--quick", action="store_true", help="the form of at most ten minutes")
    study.add_argument("--arms", type=_names, default=(), metavar="A,B", help="these arms only")
    study.add_argument("--seeds", type=_numbers, default=(), metavar="0,1", help="these seeds only")
    study.add_argument("--files", type=Path, default=Path("."), help="storage root that a base checkpoint refers to")
    study.add_argument(
        "--report",
        action="store_true",
        help="keep the results with the product, and write docs/methods; without --out from the results kept before",
    )
    study.set_defaults(handler=_study)
    for name, text in (
        ("merge", "write an adapter and its base as one plain model folder"),
        ("convert", "write any model (a GGUF file, for one) as a plain fp32 model folder"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("model", help="adapter, policy or checkpoint folder, .gguf file, or org/name on the hub")
        verb.add_argument("--out", type=Path, required=True, help="folder to write")
        verb.add_argument("--files", type=Path, default=Path("."), help="storage root that an adapter's base refers to")
        verb.set_defaults(handler=_export, merge=name == "merge")
    _dataset_verbs(verbs)
    for name, handler, text in (
        ("methods", _methods, "list methods and base algorithms"),
        ("tasks", _tasks, "list tasks and their parameters"),
        ("schema", _schema, "print the JSON schema of configurations"),
    ):
        verb = verbs.add_parser(name, help=text)
        verb.add_argument("--json", action="store_true", help="for programs")
        verb.set_defaults(handler=handler)
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in _names(text))


def _dataset_verbs(verbs: Any) -> None:
    dataset = verbs.add_parser("dataset", help="look at a file of problems, or import it as a dataset version")
    kinds = dataset.add_subparsers(required=True, metavar="WHAT")
    for name, text in (
        ("inspect", "print what a file holds and its first rows"),
        ("import", "write rows.parquet and a report"),
    ):
        verb = kinds.add_parser(name, help=text)
        verb.add_argument(
            "source", type=Path, help="file (.jsonl, .json, .csv, .tsv, .parquet, .gz) or save_to_disk folder"
        )
        verb.add_argument("--name", help="what the file is called, where its path does not say so")
        verb.add_argument("--mapping", type=Path, help="JSON file with the mapping (default: the recognised one)")
        verb.add_argument("--out", type=Path, required=name == "import", help="folder for rows.parquet and report.json")
        verb.add_argument(
            "--others", type=Path, help="JSON list of {id, name, path}: versions to look for shared problems in"
        )
        verb.set_defaults(handler=_dataset, what=name)


def _dataset(arguments: argparse.Namespace) -> int:
    """Prints JSON lines: progress, and last the result, or {error} with exit code CONFIG."""
    from trainer.data.importers.command import run

    return run(arguments)


def _attempt_options(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--attempt", type=int, help="attempt number (default: one more than the newest)")
    verb.add_argument("--files", type=Path, default=Path("."), help="storage root that checkpoint paths refer to")
    verb.add_argument("--parent-fd", type=int, help="stop when this inherited pipe closes")
    verb.add_argument("--keep-all", action="store_true", help="remove no older checkpoint")
    verb.add_argument("--quiet", action="store_true", help="write events.jsonl only")


def _echo(quiet: bool) -> Any:
    from trainer.loop.emitter import TerminalEcho, json_echo

    if quiet:
        return None
    return TerminalEcho() if sys.stderr.isatty() else json_echo


def _ask_the_hub_for(base: str | None, files: Path) -> None:
    """Libraries ask the Hugging Face hub for nothing, unless the base is named by its name there."""
    from trainer.policy.hub import is_hub_name

    if base is None or not is_hub_name(base, files):
        os.environ.setdefault("HF_HUB_OFFLINE", "1")


def _start(
    document: Any,
    run: Path,
    arguments: argparse.Namespace,
    *,
    resume: bool,
    checkpoints: tuple[Path, ...] | None = None,
) -> int:
    _ask_the_hub_for((document.get("policy") or {}).get("checkpoint"), arguments.files)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from trainer.contract.redaction import RedactingStream
    from trainer.core.world import join_world
    from trainer.launch import processes_of, run_processes
    from trainer.loop.run import Attempt, next_attempt, redactor_for, run_attempt

    if redactor := redactor_for(document):
        # Whatever prints, a library's log or a traceback, prints through these.
        sys.stdout, sys.stderr = streams = RedactingStream(sys.stdout, redactor), RedactingStream(sys.stderr, redactor)
        for stream in streams:
            atexit.register(stream.finish)
    world = join_world()
    number = world.first_only(lambda: arguments.attempt or next_attempt(run))
    folder = run / "attempts" / str(number)
    if world.first_only(lambda: (folder / "events.jsonl").exists()):
        print(f"{folder} has run already; leave --attempt out or take another number", file=sys.stderr)
        return ExitCode.CONFIG
    count = processes_of(document)
    if count > 1:
        return run_processes(count, [*arguments.argv, "--attempt", str(number)], parent_fd=arguments.parent_fd)
    attempt = Attempt(
        run=run,
        number=number,
        files=arguments.files,
        resume=resume,
        parent_fd=arguments.parent_fd,
        echo=_echo(arguments.quiet) if world.first else None,
        checkpoints=checkpoints,
        retain=not arguments.keep_all,
        world=world,
    )
    code = run_attempt(document, attempt)
    if world.first and code not in (ExitCode.FINISHED, ExitCode.STOPPED):
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
    chosen: tuple[Path, ...] | None = None
    if arguments.from_start:
        chosen = ()
    elif arguments.checkpoint:
        chosen = tuple(arguments.run / folder for folder in arguments.checkpoint)
    return _start(document, arguments.run, arguments, resume=True, checkpoints=chosen)


def _evaluate(arguments: argparse.Namespace) -> int:
    import tempfile

    here = Path(arguments.checkpoint)
    document = {
        "kind": "evaluate",
        "policy": {"checkpoint": str(here.resolve()) if here.exists() else arguments.checkpoint},
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
        options = argparse.Namespace(
            attempt=None, files=arguments.files, parent_fd=None, keep_all=False, quiet=not sys.stderr.isatty()
        )
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


def _export(arguments: argparse.Namespace) -> int:
    """A plain folder of a model's weights; the way in for a GGUF file and the way out for an adapter."""
    _ask_the_hub_for(arguments.model, arguments.files)
    from trainer.core.errors import CheckpointError, ConfigError
    from trainer.policy.export import export

    try:
        print(json.dumps(export(arguments.model, arguments.out, files=arguments.files, merge=arguments.merge)))
    except (ConfigError, CheckpointError) as error:
        print(error, file=sys.stderr)
        return ExitCode.CONFIG if isinstance(error, ConfigError) else ExitCode.STORAGE
    return ExitCode.FINISHED


def _study(arguments: argparse.Namespace) -> int:
    """Runs what is missing, and prints the table, the frontier and the verdict (JSON where the output is no terminal)."""
    from pydantic import ValidationError

    from trainer.contract.findings import findings
    from trainer.contract.results import StudyResults
    from trainer.contract.study import Study
    from trainer.studies import committed_results, load_study, study_slugs
    from trainer.studies.report import publish, publish_docs, table_text

    try:
        path = Path(arguments.study)
        study = Study.model_validate_json(path.read_text()) if path.suffix == ".json" else load_study(arguments.study)
    except KeyError:
        print(
            f"no study {arguments.study!r}; there are {', '.join(study_slugs())}, or give a JSON file", file=sys.stderr
        )
        return ExitCode.CONFIG
    except (OSError, ValidationError) as error:
        print(f"{arguments.study}: {error}", file=sys.stderr)
        return ExitCode.CONFIG
    if arguments.out is None:
        document = committed_results(study.slug)
        if not arguments.report:
            print("--out is missing: the folder of the study", file=sys.stderr)
            return ExitCode.CONFIG
        if document is None:
            publish_docs(study, None)
            print("Not run yet: the page says so.")
            return ExitCode.FINISHED
        results = StudyResults.model_validate(document["results"])
    else:
        code = _run_study(study, arguments)
        if code != ExitCode.FINISHED:
            return code
        results = StudyResults.model_validate(json.loads((arguments.out / "results.json").read_text())["results"])
    print(table_text(findings(study, results)))
    if arguments.report:
        for written in publish(study, results):
            print(f"wrote {written}", file=sys.stderr)
    return ExitCode.FINISHED


def _run_study(study: Any, arguments: argparse.Namespace) -> int:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from trainer.contract.config import InvalidConfig
    from trainer.core.errors import ConfigError, StopRequested
    from trainer.loop.stopping import StopFlag
    from trainer.loop.study import RunFailed, Runner

    unknown = set(arguments.arms) - {arm.name for arm in study.arms}
    if unknown:
        print(f"--arms: no arm {sorted(unknown)}; there are {', '.join(a.name for a in study.arms)}", file=sys.stderr)
        return ExitCode.CONFIG
    runner = Runner(
        study,
        "quick" if arguments.quick else "full",
        arguments.out.resolve(),
        files=arguments.files,
        arms=arguments.arms,
        seeds=arguments.seeds,
        stop=StopFlag(),
    )
    try:
        runner.run()
    except (ConfigError, InvalidConfig) as error:
        print(error, file=sys.stderr)
        return ExitCode.CONFIG
    except StopRequested as stop:
        print(stop, file=sys.stderr)
        return ExitCode.STOPPED
    except RunFailed as error:
        print(error, file=sys.stderr)
        return error.code
    return ExitCode.FINISHED


def _methods(arguments: argparse.Namespace) -> int:
    from trainer.contract.presets import PRESETS
    from trainer.methods import all_methods
    from trainer.studies.report import verdict_of

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
            "study": verdict_of(s.slug),
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
