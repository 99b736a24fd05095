"""What the demo puts into an installation: a person, a project, the base checkpoint, and ordinary runs."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from webapp.accounts.models import User
from webapp.accounts.services import create_user_with_one_time_password
from webapp.checkpoints.importing import import_checkpoint
from webapp.checkpoints.models import Checkpoint
from webapp.launch.services import launch_run
from webapp.projects.models import Project
from webapp.projects.services import create_project
from webapp.runs.models import Run
from webapp.teams.models import Team
from webapp.teams.services import create_team

EMAIL = "demo@localhost.localdomain"
TAG = "demo"
ASSETS = Path(settings.BASE_DIR) / "trainer" / "assets"


@dataclass(frozen=True)
class Cast:
    """Who signs in with which password (None: one that they chose earlier), and where the demo lives."""

    user: User
    password: str | None
    project: Project
    base: Checkpoint


def prepare() -> Cast:
    """Makes what is missing; a second call changes nothing but a one-time password that nobody has replaced."""
    user = User.objects.filter(email=EMAIL).first()
    password = None
    if user is None or user.must_choose_password:
        user, password = create_user_with_one_time_password(EMAIL, display_name="Demo")
    team = Team.objects.filter(slug="demo").first() or create_team(slug="demo", name="Demo lab", owner=user)
    project = Project.objects.filter(team=team, slug="countdown").first() or create_project(
        team=team, slug="countdown", name="Countdown"
    )
    folder = ASSETS / "countdown4-base"
    details = json.loads((folder / "base.json").read_text())
    base = import_checkpoint(project=project, folder=folder, name="countdown4-base", details=details)
    return Cast(user, password, project, base)


def document(name: str, checkpoint: str, **evaluation: Any) -> dict[str, Any]:
    """A launch document of the assets, started from a checkpoint; `evaluation` overrides fields of that section."""
    found: dict[str, Any] = json.loads((ASSETS / f"demo-{name}.json").read_text())
    found["policy"] = {"checkpoint": checkpoint}
    found["evaluation"] = {**found["evaluation"], **evaluation}
    return found


def launch_all(cast: Cast) -> dict[str, Run]:
    """GRPO and SPS from the base, and the base's own test evaluation: ordinary runs, queued in this order."""
    base = cast.base.policy_uri
    return {
        name: launch_run(cast.project, cast.user, document(kind, base), name=title, tags=[TAG])
        for name, kind, title in (
            ("grpo", "grpo", "GRPO"),
            ("sps", "sps", "SPS"),
            ("base", "evaluate", "Base, evaluated"),
        )
    }


def launch_hotter(cast: Cast, grpo: Run) -> Run | None:
    """GRPO's final checkpoint, sampled hotter; None while there is no such checkpoint."""
    finals = Checkpoint.objects.filter(run=grpo, final=True, removed_at=None, retired=False)
    final = finals.order_by("-iteration").first()
    if final is None:
        return None
    return launch_run(cast.project, cast.user, document("evaluate-hot", final.policy_uri), name="GRPO, sampled hotter",
                      parent=grpo, tags=[TAG])  # fmt: skip


def launched_before(project: Project) -> bool:
    """Whether the demo's runs were launched in this project by an earlier start."""
    return any(TAG in tags for tags in Run.objects.filter(project=project).values_list("tags", flat=True))
