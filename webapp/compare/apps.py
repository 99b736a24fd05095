"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.nav import NavItem


class CompareConfig(AppConfig):
    name = "webapp.compare"
    nav = [NavItem(label="Compare", route="compare:index", icon="compare", key="g c", order=40)]
