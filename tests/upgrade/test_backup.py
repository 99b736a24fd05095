"""A backup gives the same installation back: row by row and file by file, on the other database too."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.installed.documents import SPS, rl
from tests.installed.processes import HELD, ROOT, any_port, environment, installed
from tests.upgrade.test_upgrade import OWNER, check_that_everything_is_there, ran
from webapp.backup.archive import MANIFEST, opened, written

Env = dict[str, str]


def manage(env: Env, *arguments: str) -> str:
    return ran(env, "manage.py", *arguments)


def refused(env: Env, *arguments: str) -> str:
    """What a command that fails says."""
    done = subprocess.run(
        [sys.executable, "manage.py", *arguments], cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stderr


def rows(env: Env) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(ran(env, "-m", "tests.upgrade.tables"))
    return found


def files(data: Path) -> dict[str, str]:
    """SHA-256 of everything in the file storage."""
    root = data / "files"
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*")) if path.is_file()
    }  # fmt: skip


def check_round_trip(source: Env, target: Env, backup: Path) -> None:
    """Makes a backup of the one and restores it as the other."""
    manage(source, "migrate", "--verbosity", "0")
    told = manage(source, "backup", str(backup))
    assert "Without keys: keep UNSQUEEZE_SECRETS_KEY" in told
    manage(target, "restore", str(backup))
    before, after = rows(source), rows(target)
    assert before["metrics.Point"]
    for table in before:
        assert after[table] == before[table], table
    assert after.keys() == before.keys()
    found = files(Path(source["UNSQUEEZE_DATA"]))
    assert len(found) > 100
    assert files(Path(target["UNSQUEEZE_DATA"])) == found
    # Numbers of new rows come after those that were put in.
    assert "is at /p/lab/second/" in manage(target, "newproject", OWNER, "lab/second")


def test_a_backup_gives_the_same_installation_back(unpacked: Path, tmp_path: Path) -> None:
    source, target = environment(unpacked / "data"), environment(tmp_path / "other")
    backup = tmp_path / "backup.tar"
    check_round_trip(source, target, backup)
    assert backup.stat().st_mode & 0o777 == 0o600
    with tarfile.open(backup) as tar:
        assert not [name for name in tar.getnames() if "key" in name]

    text = refused(target, "restore", str(backup))
    assert (
        "not restored: there are users, teams, runs in the database; --replace puts the backup in their place" in text
    )
    (tmp_path / "other" / "files" / "stray").write_text("not in the backup")
    manage(target, "restore", str(backup), "--replace", "--no-input")
    assert rows(target) == rows(source)
    assert files(tmp_path / "other") == files(unpacked / "data")


@pytest.mark.postgres
@pytest.mark.parametrize("way", ["from PostgreSQL", "to PostgreSQL", "on PostgreSQL"])
def test_a_backup_moves_between_databases(
    unpacked: Path, tmp_path: Path, postgres: str, empty_postgres: str, way: str
) -> None:
    source = {} if way == "to PostgreSQL" else {"UNSQUEEZE_DATABASE_URL": postgres}
    target = {} if way == "from PostgreSQL" else {"UNSQUEEZE_DATABASE_URL": empty_postgres}
    check_round_trip(
        environment(unpacked / "data", source), environment(tmp_path / "other", target), tmp_path / "backup.tar"
    )


@pytest.mark.slow
def test_a_backup_of_the_first_release_is_migrated(unpacked: Path, tmp_path: Path, expected: dict[str, Any]) -> None:
    manage(environment(unpacked / "data"), "backup", str(tmp_path / "backup.tar"))
    with opened(tmp_path / "backup.tar") as backup:
        assert ["runs", "0001_initial"] in backup.manifest["migrations"]
        assert not [name for app, name in backup.manifest["migrations"] if app == "teams" and name > "0002"]
    target = environment(tmp_path / "other")
    manage(target, "restore", str(tmp_path / "backup.tar"))
    check_that_everything_is_there(target, expected)


def test_a_damaged_or_newer_backup_is_refused_before_anything_is_touched(unpacked: Path, tmp_path: Path) -> None:
    source, backup = environment(unpacked / "data"), tmp_path / "backup.tar"
    manage(source, "backup", str(backup), "--no-files")
    target = environment(tmp_path / "other")
    manage(target, "migrate", "--verbosity", "0")
    before = rows(target)

    whole = backup.read_bytes()
    broken = tmp_path / "broken.tar"
    middle = len(whole) // 2
    broken.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    assert "was changed or cut short" in refused(target, "restore", str(broken), "--replace", "--no-input")
    broken.write_bytes(whole[:middle])
    assert "cut short" in refused(target, "restore", str(broken), "--replace", "--no-input")
    broken.write_bytes(b"no tar at all")
    assert "is not a backup" in refused(target, "restore", str(broken), "--replace", "--no-input")

    with opened(backup) as found, written(tmp_path / "newer.tar") as out:
        for name, about in found.manifest["members"].items():
            out.add(name, about["size"], [found.open(name).read()])
        newer = [*found.manifest["migrations"], ["runs", "9999_from_the_future"]]
        out.add_json(MANIFEST, {**found.manifest, "migrations": newer, "version": "9.0"})
    text = refused(target, "restore", str(tmp_path / "newer.tar"))
    assert "comes from a newer version (9.0): this one does not know its migrations runs.9999_from_the_future" in text
    assert rows(target) == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.slow
def test_a_run_that_was_going_waits_for_a_worker_of_its_new_place(
    unpacked: Path, tmp_path: Path, expected: dict[str, Any]
) -> None:
    source, run = environment(unpacked / "data"), expected["runs"]["killed"]["id"]
    manage(source, "migrate", "--verbosity", "0")
    with sqlite3.connect(unpacked / "data" / "db.sqlite3") as database:
        database.execute("UPDATE runs_run SET state = 'running' WHERE id = ?", [run])
        database.execute("UPDATE runs_attempt SET state = 'running', claim = 'x' WHERE run_id = ?", [run])
    database.close()
    manage(source, "backup", str(tmp_path / "backup.tar"))
    target = environment(tmp_path / "other")
    told = manage(target, "restore", str(tmp_path / "backup.tar"))
    assert f"run {run} was going when the backup was made; it is queued now" in told
    with sqlite3.connect(tmp_path / "other" / "db.sqlite3") as database:
        steps = database.execute("SELECT target, reason FROM runs_transition WHERE run_id = ? ORDER BY id", [run])
        found = steps.fetchall()[-2:]
    database.close()
    assert [step for step, _ in found] == ["lost", "queued"]
    assert found[0][1].startswith("Restored from a backup of 20")
    assert "in which it was going; its worker is not here." in found[0][1]


@pytest.mark.slow
def test_keys_travel_only_where_asked_for(unpacked: Path, tmp_path: Path) -> None:
    source = environment(unpacked / "data")
    manage(source, "backup", str(tmp_path / "backup.tar"), "--no-files", "--with-keys")
    manage(environment(tmp_path / "other"), "restore", str(tmp_path / "backup.tar"))
    for name in ("secret_key", "secrets_key"):
        assert (tmp_path / "other" / name).read_text() == (unpacked / "data" / name).read_text()
        assert (tmp_path / "other" / name).stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_backup_in_the_middle_of_a_run_goes_on_elsewhere_to_the_same_end(tmp_path: Path) -> None:
    document = rl(methods=SPS, budget={"iterations": 30}, checkpoints={"every": 10})
    with installed(tmp_path / "data", port=any_port(), extra=HELD, start=("worker", "scheduler")) as here:
        here.hand("people", roles={"ada@example.org": "owner"})
        run = here.hand("launch", document=document)
        here.hold(run, at=15)
        here.wait_for(run, "running", iteration=15)
        manage(here.env, "backup", str(tmp_path / "backup.tar"))
        here.release(run)
        assert here.wait_for(run)["state"] == "finished"
        whole = here.hand("record", run=run)
    manage(environment(tmp_path / "other"), "restore", str(tmp_path / "backup.tar"))
    with installed(tmp_path / "other", port=any_port(), start=("worker", "scheduler")) as there:
        finished = there.wait_for(run, "finished")
        assert finished["attempt"] == 2
        found = there.hand("record", run=run)
    for part in whole:
        assert found[part] == whole[part], part
