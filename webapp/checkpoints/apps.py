"""Registration of the app."""

from django.apps import AppConfig


class CheckpointsConfig(AppConfig):
    name = "webapp.checkpoints"
