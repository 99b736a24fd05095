"""Makes the archive of a release's installation that `test_upgrade.py` upgrades. Run once for a release, with its code:

    git worktree add /tmp/release 5c7f2f6
    python tests/upgrade/make_release.py /tmp/release tests/upgrade/release-0.1.tar.xz postgres://…/postgres

It plays a small team's first weeks with that release's own services and trainer: a base made by fine-tuning and one
imported, GRPO + SPS to its end, an evaluation, a run that was stopped and one that was killed (both to be resumed), one
that could not start, and one still in the queue. Each of the two that stopped halfway has a twin that was left alone, so
that the upgraded code can show that it ends with the same numbers.

In the archive: `data/` (the data folder with SQLite), `postgres.sql` (the same rows, as pg_dump writes them) and
`expected.json` (what the release itself said about every run, and on which kind of machine).
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PASSWORD = "correct horse battery"
TASK = {"name": "mod_chain", "params": {"terms": 2, "modulus": 5}, "problems": 40}
ARCHITECTURE = {
    "hidden_size": 24, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 48, "max_positions": 32
}  # fmt: skip
EVALUATION = {"every": 6, "problems": 8, "samples": 4, "final_problems": 8, "final_samples": 4}
SPS = [{"slug": "sps", "params": {"k_rl": 3, "k_irl": 2, "prompts": "all"}}]


def rl(base: str, **changes: Any) -> dict[str, Any]:
    """A few iterations of GRPO."""
    return {
        "kind": "rl",
        "policy": {"checkpoint": base},
        "task": TASK,
        "sampling": {"max_new_tokens": 3},
        "algorithm": {"prompts_per_iteration": 4, "num_generations": 4, "entropy_coef": 0.01, "kl_coef": 0.01},
        "optimizer": {"learning_rate": 0.003},
        "evaluation": EVALUATION,
        "budget": {"iterations": 24},
        "checkpoints": {"every": 4, "keep": 1},
        "save_rollouts_every": 3,
        **changes,
    }


SFT = {
    "kind": "sft",
    "policy": {"architecture": ARCHITECTURE},
    "task": TASK,
    "sampling": {"max_new_tokens": 3},
    "sft": {"rows": 400, "batch_size": 32, "log_every": 10},
    "optimizer": {"learning_rate": 0.01},
    "evaluation": {**EVALUATION, "every": 100},
    "budget": {"iterations": 300},
    "checkpoints": {"every": 150, "keep": 1},
}


def main(release: Path, archive: Path, postgres: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        os.environ["UNSQUEEZE_DATA"] = str(out / "data")
        sys.path.insert(0, str(release.resolve()))
        os.chdir(release)
        os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.config.settings"
        import django

        django.setup()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        (out / "expected.json").write_text(json.dumps(live(out), indent=1, sort_keys=True))
        dump(postgres, out / "postgres.sql")
        _tidy(out / "data")
        with tarfile.open(archive, "w:xz", preset=9) as tar:
            for name in ("data", "postgres.sql", "expected.json"):
                tar.add(out / name, arcname=name)
    print(f"{archive}: {archive.stat().st_size / 1e6:.2f} MB")


def live(out: Path) -> dict[str, Any]:
    """The team's first weeks; what the release says about them."""
    from webapp.accounts.models import User
    from webapp.checkpoints.services import import_checkpoint
    from webapp.launch.services import launch_run, resume_run
    from webapp.projects.services import create_project
    from webapp.runs.models import Run
    from webapp.runs.services import describe, request_stop
    from webapp.runs.storage import path_of
    from webapp.teams.models import Role
    from webapp.teams.services import create_team, set_role

    ada = User.objects.create_user("ada@example.org", PASSWORD, display_name="Ada")
    bo = User.objects.create_user("bo@example.org", PASSWORD, display_name="Bo")
    team = create_team(slug="lab", name="Lab", owner=ada)
    set_role(team=team, user=bo, role=Role.VIEWER)
    project = create_project(team=team, slug="chains", name="Chains")

    def launch(document: dict[str, Any], name: str, **more: Any) -> Run:
        return launch_run(project, ada, document, name=name, **more)

    sft = supervise(launch(SFT, "base by fine-tuning"))
    policy = path_of(sft.checkpoints.get(final=True).policy_uri)
    base = import_checkpoint(project=project, folder=policy, name="tiny base").policy_uri
    sps = supervise(launch(rl(base, methods=SPS), "grpo and sps", tags=["first", "sps"], notes="The **first** one."))
    describe(run=sps, notes="The first one. It works.")
    final = sps.checkpoints.get(final=True).policy_uri
    evaluate = {"kind": "evaluate", "policy": {"checkpoint": final}, "task": TASK, "sampling": {"max_new_tokens": 3},
                "evaluation": EVALUATION}  # fmt: skip
    supervise(launch(evaluate, "its evaluation", parent=sps))

    seeds = {"stopped": 3, "killed": 4}
    for name, seed in seeds.items():
        supervise(launch(rl(base, methods=SPS, seed=seed), f"{name} undisturbed"))
    stopped = launch(rl(base, methods=SPS, seed=seeds["stopped"]), "stopped")
    supervise(stopped, lambda now: now.iteration >= 6 and now.can_stop and request_stop(run=now, user=ada))
    # Resumed once already by the release, and stopped again.
    resume_run(stopped, ada)
    supervise(stopped, lambda now: now.iteration >= 15 and now.can_stop and request_stop(run=now, user=ada))
    killed = launch(rl(base, methods=SPS, seed=seeds["killed"]), "killed")
    supervise(killed, lambda now: now.iteration >= 9 and kill(now))
    supervise(launch(rl("checkpoints/nowhere"), "no such base"))
    launch(rl(base), "in the queue")
    return {
        "runs": {run.name: said(run) for run in Run.objects.all()},
        "machine": machine(),
        "versions": sps.versions,
        "people": {"ada@example.org": PASSWORD, "bo@example.org": PASSWORD},
    }


def supervise(run: Any, act: Callable[[Any], Any] = lambda now: None) -> Any:
    """The run's current attempt to its end, in this process; `act` sees the run as it goes."""
    from webapp.launch.supervisor import Supervisor
    from webapp.runs.models import Run
    from webapp.runs.services import claim
    from webapp.runs.storage import files_root

    attempt = run.attempts.order_by("-number").first()
    held = claim(attempt.pk, worker="host-of-release-0.1/worker", lease_seconds=60)

    def idle(seconds: float) -> None:
        act(Run.objects.get(pk=run.pk))
        time.sleep(0.002)

    Supervisor(held, root=Path(files_root()), sleep=idle).run()
    done = Run.objects.get(pk=run.pk)
    print(done.name, done.state, done.iteration, done.message[:90])
    return done


def kill(run: Any) -> None:
    """As a machine that runs out of memory does."""
    pid = run.attempts.get(number=run.attempt_number).pid
    if pid and Path(f"/proc/{pid}").exists():
        os.killpg(pid, signal.SIGKILL)


def said(run: Any) -> dict[str, Any]:
    """What the release knows of a run."""
    from tests.installed.record import record_of

    return {
        "id": run.pk, "kind": run.kind, "state": run.state, "message": run.message, "iteration": run.iteration,
        "attempts": run.attempt_number, "config": run.config, "tags": run.tags, "notes": run.notes,
        "parent": run.parent_id, "record": record_of(run),
        "transitions": [t.target for t in run.transitions.all()],
        "checkpoints": [list(row) for row in run.checkpoints.filter(removed_at=None).order_by("pk")
                        .values_list("iteration", "weights_hash")],
        "events": run.events.count(),
    }  # fmt: skip


def machine() -> str:
    """Bits are the same on the same kind: what decides which kernels the sums run through."""
    import torch

    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()} torch {torch.__version__}"


def dump(postgres: str, target: Path) -> None:
    """The rows in a PostgreSQL database that the release itself migrated, as SQL."""
    import psycopg
    from django.apps import apps
    from django.core.management import call_command
    from django.core.management.color import no_style
    from django.db import connections, transaction

    from webapp.config import env

    name = f"release_{os.getpid()}"
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name}")
    address = postgres.rpartition("/")[0] + f"/{name}"
    os.environ["THE_COPY"] = address
    connections.settings["copy"] = connections.configure_settings(
        {"default": {}, "copy": env.database("THE_COPY", data=target.parent)}
    )["copy"]
    try:
        call_command("migrate", database="copy", verbosity=0)
        models = apps.get_models(include_auto_created=True)
        copy = connections["copy"]
        with transaction.atomic(using="copy"), copy.cursor() as cursor:
            tables = [copy.ops.quote_name(model._meta.db_table) for model in models]
            cursor.execute(f"TRUNCATE {', '.join(tables)} CASCADE")
            for model in models:
                fields = model._meta.local_concrete_fields
                columns = ", ".join(copy.ops.quote_name(field.column) for field in fields)
                places = ", ".join(["%s"] * len(fields))
                rows = [
                    [f.get_db_prep_save(v, copy) for f, v in zip(fields, row, strict=True)]
                    for row in model._base_manager.values_list(*(field.attname for field in fields))
                ]
                table = copy.ops.quote_name(model._meta.db_table)
                cursor.executemany(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
            for statement in copy.ops.sequence_reset_sql(no_style(), models):
                cursor.execute(statement)
        copy.close()
        text = subprocess.run(
            ["pg_dump", "--no-owner", "--no-privileges", "--inserts", "--rows-per-insert=500", address],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        # Statements only, so that a driver can run them; psql's own commands start with a backslash.
        target.write_text("\n".join(line for line in text.splitlines() if not line.startswith(("\\", "--"))) + "\n")
    finally:
        with psycopg.connect(postgres, autocommit=True) as server:
            server.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _tidy(data: Path) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        cursor.execute("VACUUM")
    connection.close()
    shutil.rmtree(data / "static", ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).resolve(), sys.argv[3])
