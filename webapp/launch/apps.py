"""Registration of the app."""

from django.apps import AppConfig


class LaunchConfig(AppConfig):
    name = "webapp.launch"

    def ready(self) -> None:
        from webapp.launch import shutdown

        shutdown.connect()
