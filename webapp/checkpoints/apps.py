"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.jobs import Job
from webapp.core.nav import NavItem


class CheckpointsConfig(AppConfig):
    name = "webapp.checkpoints"
    nav = [
        NavItem(label="Checkpoints", route="checkpoints:index", icon="download", key="g c", order=45, inside=("files",))
    ]
    jobs = [
        Job(name="expired-uploads", work="webapp.checkpoints.uploading:remove_expired", every=3600.0),
        Job(name="retention", work="webapp.checkpoints.retention:apply_automatic", every=24 * 3600.0),
    ]
