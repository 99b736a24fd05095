"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.jobs import Job
from webapp.core.nav import NavItem


class StudiesConfig(AppConfig):
    name = "webapp.studies"
    nav = [NavItem(label="Studies", route="studies:index", icon="check", key="g s", order=30)]
    jobs = [Job(name="studies", work="webapp.studies.services:follow", every=5.0)]
