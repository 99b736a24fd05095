"""Registration of the app."""

from django.apps import AppConfig


class BackupConfig(AppConfig):
    name = "webapp.backup"
