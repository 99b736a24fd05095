"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.nav import NavItem


class LaunchConfig(AppConfig):
    name = "webapp.launch"
    nav = [NavItem(label="Launch", route="launch:new", icon="launch", key="n", capability="launch", slot="primary")]

    def ready(self) -> None:
        from webapp.launch import shutdown

        shutdown.connect()
