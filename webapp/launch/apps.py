"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.jobs import Job
from webapp.core.nav import NavItem


class LaunchConfig(AppConfig):
    name = "webapp.launch"
    nav = [
        NavItem(label="Launch", route="launch:new", icon="launch", key="n", capability="launch", slot="primary"),
        NavItem(label="Queue", route="launch:queue", icon="queue", key="g q", order=40),
    ]

    @property
    def jobs(self) -> list[Job]:
        from webapp.launch.imports import LOOK_EVERY
        from webapp.launch.queue import beat_every

        return [
            Job(name="reap", work="webapp.launch.queue:reap", every=beat_every()),
            Job(name="send-again", work="webapp.launch.queue:send_again", every=2.0),
            Job(name="import", work="webapp.launch.imports:run_waiting", every=1.0),
            Job(name="reap-imports", work="webapp.launch.imports:reap", every=LOOK_EVERY),
            Job(name="forget-workers", work="webapp.launch.workers:forget", every=3600.0),
        ]

    def ready(self) -> None:
        from webapp.launch import shutdown

        shutdown.connect()
