"""Navigation entries and the home page's bands, which the apps bring themselves.

An app adds itself in its `apps.py`, without an edit anywhere else:

    class RunsConfig(AppConfig):
        name = "webapp.runs"
        nav = [NavItem(label="Runs", route="runs:index", icon="list", key="g r", order=20)]
        home_bands = [HomeBand(source="webapp.runs.bands:running", template="runs/_band_running.html", order=20)]
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from django.apps import apps
from django.utils.module_loading import import_string

# A band's source: (project, user) -> what the template shows, or None when there is nothing.
BandSource = Callable[[Any, Any], Mapping[str, Any] | None]


@dataclass(frozen=True, kw_only=True)
class NavItem:
    """One entry.

    `route` is a URL name below a project, `key` the shortcut that opens it, and `capability` the value of the
    `webapp.teams.permissions.Capability` without which it is hidden. The slot `primary` is the button at the top right;
    there is one. The entry is marked on pages of its own namespace and of those in `inside`.
    """

    label: str
    route: str
    icon: str = ""
    key: str = ""
    order: int = 50
    capability: str = "view"
    slot: Literal["main", "primary"] = "main"
    inside: tuple[str, ...] = ()

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.route.partition(":")[0], *self.inside)


@dataclass(frozen=True, kw_only=True)
class HomeBand:
    """One band of the home page. `source` ("module:function") gives a mapping, which `template` sees as `band`."""

    source: str
    template: str
    order: int = 50

    def context(self, project: Any, user: Any) -> Mapping[str, Any] | None:
        load: BandSource = import_string(self.source.replace(":", "."))
        return load(project, user)


def nav_items() -> list[NavItem]:
    """The entries of all installed apps, in order."""
    found = [item for config in apps.get_app_configs() for item in getattr(config, "nav", ())]
    return sorted(found, key=lambda item: item.order)


def home_bands() -> list[HomeBand]:
    """The bands of all installed apps, in order."""
    found = [band for config in apps.get_app_configs() for band in getattr(config, "home_bands", ())]
    return sorted(found, key=lambda band: band.order)
