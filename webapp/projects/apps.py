"""Registration of the app."""

from django.apps import AppConfig

from webapp.core.nav import NavItem


class ProjectsConfig(AppConfig):
    name = "webapp.projects"
    nav = [NavItem(label="Home", route="projects:home", icon="home", key="g h", order=10)]
