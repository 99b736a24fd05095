"""What people see of an installation, asked page by page: every address that a page links to, without a server.

Runs as a process with the installation's own settings: `python -m tests.upgrade.visit E-MAIL` prints a JSON object of
address → [status, text] for everything that this person reaches from the front page.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from html import unescape
from typing import Any

import django

ADDRESS = re.compile(r'(?:href|hx-get|data-[a-z-]+)="(/[^"#]*)["#]')
# One of a view's pages a run is a page; the same with another filter or order is not worth asking often.
TIMES_PER_VIEW = 4
MOST = 2000


def main(email: str) -> None:
    django.setup()
    from django.conf import settings

    settings.ALLOWED_HOSTS = ["testserver"]
    # What the finders see: the manifest of collected files is no part of what is upgraded.
    settings.STORAGES["staticfiles"] = {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}
    json.dump(visited(email), sys.stdout)


def visited(email: str) -> dict[str, list[Any]]:
    from django.http import QueryDict
    from django.test import Client
    from django.urls import Resolver404, resolve

    from webapp.accounts.models import User

    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get(email=email))
    waiting, seen, found = ["/"], {"/"}, {}
    times: Counter[Any] = Counter()
    while waiting and len(found) < MOST:
        address = waiting.pop(0)
        response = client.get(address, follow=True)
        if response.streaming:
            response.close()
            continue
        text = response.content.decode(errors="replace")
        found[address] = [response.status_code, text]
        if "html" not in response.headers.get("Content-Type", ""):
            continue
        for link in ADDRESS.findall(text):
            link = unescape(link)
            path, _, query = link.partition("?")
            try:
                match = resolve(path)
            except Resolver404:
                continue
            kind = (match.view_name, *match.kwargs.values(), QueryDict(query).get("from"))
            if link in seen or match.view_name == "live:stream" or times[kind] >= TIMES_PER_VIEW:
                continue
            seen.add(link)
            times[kind] += 1
            waiting.append(link)
    return found


if __name__ == "__main__":
    main(sys.argv[1])
