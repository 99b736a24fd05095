"""Registration of the app."""

from django.apps import AppConfig


class TeamsConfig(AppConfig):
    name = "webapp.teams"
