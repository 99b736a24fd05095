"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.nav import NavItem


class MethodsConfig(AppConfig):
    name = "webapp.methods"
    nav = [NavItem(label="Methods", route="methods:index", icon="method", key="g m", order=35)]
