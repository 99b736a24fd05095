"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.nav import HomeBand, NavItem


class RunListConfig(AppConfig):
    name = "webapp.runlist"
    nav = [NavItem(label="Runs", route="runlist:index", icon="list", key="g r", order=20, inside=("runpage",))]
    home_bands = [
        HomeBand(source="webapp.runlist.bands:attention", template="runlist/_band_attention.html", order=10),
        HomeBand(source="webapp.runlist.bands:active", template="runlist/_band_running.html", order=20),
        HomeBand(source="webapp.runlist.bands:finished", template="runlist/_band_finished.html", order=30),
    ]
