"""Registration of the app."""

from django.apps import AppConfig


class RunPageConfig(AppConfig):
    name = "webapp.runpage"
