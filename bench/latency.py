"""How long a number takes from the trainer to an open page, and a launch to its first number.

Starts an installation of its own (web server, worker, scheduler), signs in, launches the demo's GRPO run and listens to
its stream as a page does. One JSON line a set-up:

    python bench/latency.py                                   SQLite and files
    python bench/latency.py --database postgres://postgres@127.0.0.1:5432/postgres --broker redis://127.0.0.1:6379/9

With --database the measurements are done in a database that is made on that server and dropped afterwards; the broker's
database must be empty. The page draws at most 250 ms after a message (`GATHER_MS` in static/js/charts.js).
"""

from __future__ import annotations

import argparse
import http.cookiejar
import json
import os
import re
import statistics
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
ASSETS = ROOT / "trainer" / "assets"
EMAIL = "bench@example.org"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", help="address of a PostgreSQL server (default: SQLite)")
    parser.add_argument("--broker", help="address of an empty Redis database (default: files)")
    parser.add_argument("--iterations", type=int, default=12, help="iterations to listen to (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="unsqueeze-bench-") as folder:
        os.environ["UNSQUEEZE_DATA"] = folder
        os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
        import django

        django.setup()
        from tests.installed.processes import any_port, installed

        with database(options.database) as address, broker(options.broker):
            found = {"UNSQUEEZE_DATABASE_URL": address, "UNSQUEEZE_BROKER_URL": options.broker}
            extra = {name: value for name, value in found.items() if value}
            with installed(Path(folder) / "data", port=any_port(), extra=extra) as here:
                result = measure(here, options.iterations)
    setup = f"{'PostgreSQL' if options.database else 'SQLite'}, {'Redis' if options.broker else 'files'}"
    print(json.dumps({"setup": setup, **result}))


@contextmanager
def database(server: str | None) -> Iterator[str]:
    """The address of a new database on the server; empty without one."""
    if not server:
        yield ""
        return
    import psycopg

    name = f"unsqueeze_bench_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield f"{server.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def broker(address: str | None) -> Iterator[None]:
    """Empties the Redis database afterwards, which must be empty before."""
    if not address:
        yield
        return
    import redis

    client = redis.Redis.from_url(address)
    if client.dbsize():
        raise SystemExit(f"{address} holds {client.dbsize()} keys; give an empty database")
    yield
    client.flushdb()


def measure(here: Any, iterations: int) -> dict[str, Any]:
    """Seconds: launch to the first number at the client, and from writing to arrival for the reward of each iteration."""
    from tests.installed.hand import PROJECT, TEAM

    password = here.hand("people", roles={EMAIL: "owner"})[EMAIL]
    browser = sign_in(here.address, password)
    document = json.loads((ASSETS / "demo-grpo.json").read_text())
    document["policy"] = {"checkpoint": here.hand("bring", folder=str(ASSETS / "countdown4-base"), called="base")}
    launched = time.time()
    run = here.hand("launch", document=document)
    row_seconds = time.time() - launched
    arrived: dict[int, float] = {}
    first: dict[str, float] = {}
    stream = f"{here.address}/p/{TEAM}/{PROJECT}/runs/{run}/stream?cursor=0"
    with browser.open(stream, timeout=300) as answer:
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            now, delta = time.time(), json.loads(line[6:])
            first.setdefault(delta["run"]["state"], now - launched)
            for one in delta.get("series", []):
                first.setdefault("number", now - launched)
                if one["key"] == "reward":
                    first.setdefault("reward", now - launched)
                    for iteration in one["iteration"]:
                        arrived.setdefault(iteration, now)
            if len(arrived) >= iterations:
                break
    here.hand("stop", run=run)
    here.wait_for(run)
    written = written_at(here.files / "runs" / run / "attempts" / "1" / "events.jsonl")
    delays = sorted(at - written[iteration] for iteration, at in arrived.items())
    return {
        "launch_to_row_s": round(row_seconds, 3),
        "launch_to_running_s": round(first["running"], 2),
        "launch_to_first_number_s": round(first["number"], 2),
        "launch_to_first_reward_s": round(first["reward"], 2),
        "event_to_client_s": {
            "median": round(statistics.median(delays), 3),
            "largest": round(delays[-1], 3),
            "events": len(delays),
        },
        "load": round(os.getloadavg()[0], 1),
    }


def sign_in(address: str, password: str) -> urllib.request.OpenerDirector:
    """A client with a session."""
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))

    def token(page: str) -> str:
        found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert found is not None, "the page has no form"
        return found[1]

    def send(path: str, fields: dict[str, str]) -> str:
        page = browser.open(f"{address}{path}").read().decode()
        data = urllib.parse.urlencode({"csrfmiddlewaretoken": token(page), **fields}).encode()
        answer: str = browser.open(f"{address}{path}", data).read().decode()
        return answer

    send("/sign-in", {"email": EMAIL, "password": password})
    send("/password", {"keep": "1"})
    return browser


def written_at(path: Path) -> dict[int, float]:
    """When the trainer wrote the reward of each iteration, in seconds since 1970."""
    out: dict[int, float] = {}
    for line in path.read_text().splitlines():
        envelope = json.loads(line)
        event = envelope["event"]
        if event["kind"] == "scalars" and "reward" in event["values"]:
            out[event["axes"]["iteration"]] = datetime.fromisoformat(envelope["time"]).timestamp()
    return out


if __name__ == "__main__":
    main()
