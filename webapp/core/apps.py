"""Registration of the app."""

from django.apps import AppConfig


class CoreConfig(AppConfig):
    name = "webapp.core"

    def ready(self) -> None:
        from webapp.core import checks  # noqa: F401  (registers the checks)
