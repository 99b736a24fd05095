"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.jobs import Job
from webapp.core.nav import NavItem


class DatasetsConfig(AppConfig):
    name = "webapp.datasets"
    nav = [NavItem(label="Datasets", route="datasets:index", icon="table", key="g d", order=40)]
    jobs = [Job(name="expired-dataset-uploads", work="webapp.datasets.receiving:remove_expired", every=3600.0)]
