"""Studies: one click queues arms × seeds, what ends is measured, and the verdict comes from the stored evaluations."""

from __future__ import annotations

import random
from collections.abc import Callable
from html import unescape

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tests.conftest import Cast
from tests.webapp.making import evaluation, scalars, send
from trainer.contract.study import Study as Contract
from trainer.studies import load_study
from webapp.checkpoints.models import Checkpoint
from webapp.runs.models import Run
from webapp.runs.services import Place, claim
from webapp.runs.states import RunState
from webapp.studies import selectors, services
from webapp.studies.models import Member, Study

pytestmark = pytest.mark.django_db
TRAIN, MEASURE = Member.Part.TRAIN, Member.Part.MEASURE


def contract(**changes) -> Contract:
    """SPS's study with two arms, at one temperature."""
    document = load_study("sps").model_dump(mode="json")
    quick = {"seeds": [0, 1, 2], "amount": 1000, "arms": ["grpo", "sps", "frozen"], "temperatures": [1.0]}
    primary = {"arm": "sps", "against": "grpo", "metric": "pass@4"}
    return Contract.model_validate({**document, "quick": quick, "primary": primary, **changes})


@pytest.fixture
def study(cast: Cast) -> Study:
    return services.launch_study(cast.project, cast["member"], contract(), "quick")


def finish(run: Run, weights: str) -> None:
    """As if a worker had run it to its end."""
    held = claim(run.attempts.get(number=1).pk, place=Place("w"))
    assert held is not None
    send(held, [scalars(3, reward=0.5)])
    Run.objects.filter(pk=run.pk).update(state=RunState.FINISHED)
    uri = f"runs/{run.pk}/final"
    Checkpoint.objects.create(
        project=run.project, run=run, attempt=1, iteration=3, name="final", uri=uri, policy_uri=uri,
        weights_hash=weights, final=True, created_at=timezone.now(),
    )  # fmt: skip


def measure(member: Member, weights: str, success: float, rng: random.Random) -> None:
    for name in ("test",) if not member.arm else ("validation", "test"):
        counts = [(16, sum(rng.random() < success for _ in range(16))) for _ in range(100)]
        evaluation(member.run, 0, counts, name=name, weights=weights)
    Run.objects.filter(pk=member.run.pk).update(state=RunState.FINISHED)


def places(study: Study, part: str) -> list[tuple[str, int]]:
    return [(m.arm, m.seed) for m in study.members.filter(part=part)]


def test_one_click_queues_every_arm_with_every_seed(study: Study) -> None:
    assert places(study, TRAIN) == [(arm, seed) for seed in (0, 1, 2) for arm in ("grpo", "sps", "frozen")]
    assert places(study, MEASURE) == [("", -1)]
    runs = {(m.arm, m.seed): m.run for m in study.members.filter(part=TRAIN).select_related("run")}
    assert {run.state for run in runs.values()} == {RunState.QUEUED}
    assert [run.seed for (_, seed), run in runs.items() if seed == 2] == [2, 2, 2]
    assert runs["sps", 0].methods == ["sps"]
    assert runs["frozen", 1].config["optimizer"]["learning_rate"] == 0
    base = study.members.get(part=MEASURE).run
    assert base.config["policy"]["checkpoint"] == runs["grpo", 0].config["policy"]["checkpoint"] == study.base_uri


def test_what_is_equal_is_shared_by_two_studies(study: Study, cast: Cast) -> None:
    before = Run.objects.count()
    again = services.launch_study(cast.project, cast["member"], contract(claim="in other words"), "quick")
    assert Run.objects.count() == before
    assert {m.run_id for m in again.members.all()} == {m.run_id for m in study.members.all()}
    failed = study.members.get(part=TRAIN, arm="sps", seed=1).run
    Run.objects.filter(pk=failed.pk).update(state=RunState.FAILED)
    third = services.launch_study(cast.project, cast["member"], contract(), "quick")
    assert Run.objects.count() == before + 1
    assert third.members.get(part=TRAIN, arm="sps", seed=1).run_id != failed.pk


def test_a_finished_arm_is_measured_once(study: Study) -> None:
    services.follow()
    assert places(study, MEASURE) == [("", -1)]
    finish(study.members.get(part=TRAIN, arm="sps", seed=1).run, "w-sps-1")
    finish(study.members.get(part=TRAIN, arm="frozen", seed=0).run, "w-base")
    services.follow()
    services.follow()
    assert sorted(places(study, MEASURE)) == [("", -1), ("frozen", 0), ("sps", 1)]
    run = study.members.get(part=MEASURE, arm="sps").run
    assert run.parent == study.members.get(part=TRAIN, arm="sps", seed=1).run
    assert (run.config["split"], run.config["policy"]["checkpoint"]) == ("both", f"runs/{run.parent_id}/final")
    assert study.members.get(part=MEASURE, arm="frozen").run.config["split"] == "test"
    assert Study.objects.get().open


def test_a_study_whose_arms_are_all_measured_is_closed(study: Study) -> None:
    for member in study.members.filter(part=TRAIN):
        finish(member.run, f"w-{member.arm}-{member.seed}")
    services.follow()
    services.follow()
    assert len(places(study, MEASURE)) == 10
    assert not Study.objects.get().open


def test_a_base_that_is_trained_comes_first(cast: Cast) -> None:
    train = {
        "kind": "sft", "budget": {"iterations": 2}, "evaluation": {"final_problems": 0},
        "policy": {"architecture": {"hidden_size": 16, "layers": 1, "heads": 2, "kv_heads": 2, "intermediate_size": 16}},
    }  # fmt: skip
    study = services.launch_study(cast.project, cast["member"], contract(base={"train": train}), "quick")
    assert [(m.part, m.run.kind) for m in study.members.all()] == [("base", "sft")]
    services.follow()
    assert study.members.count() == 1
    finish(study.members.get().run, "w-base")
    services.follow()
    assert len(places(study, TRAIN)) == 9
    assert Study.objects.get().base_uri == f"runs/{study.members.get(part='base').run_id}/final"


def test_a_base_that_is_not_there_is_refused_with_the_reason(cast: Cast) -> None:
    with pytest.raises(ValidationError, match="expected a checkpoint of the project"):
        services.launch_study(cast.project, cast["member"], contract(base={"checkpoint": "elsewhere"}), "quick")
    assert not Study.objects.exists()


def measured(study: Study, sps: float, seeds=(0, 1, 2)) -> None:
    rng = random.Random(0)
    measure(study.members.get(part=MEASURE, arm=""), "w-base", 0.3, rng)
    for member in study.members.filter(part=TRAIN, seed__in=seeds):
        finish(member.run, "w-base" if member.arm == "frozen" else f"w-{member.arm}-{member.seed}")
    services.follow()
    for member in study.members.filter(part=MEASURE).exclude(arm=""):
        success = {"grpo": 0.3, "sps": sps}.get(member.arm)
        if success is not None:
            measure(member, f"w-{member.arm}-{member.seed}", success + 0.01 * member.seed, rng)


def test_the_verdict_comes_from_the_stored_evaluations(study: Study) -> None:
    assert selectors.findings_of(study).verdict == "not run yet"
    measured(study, 0.6)
    found = selectors.findings_of(study)
    assert (found.verdict, found.reasons[0]) == ("direction seen", "quick form")
    assert found.primary is not None
    assert found.primary.estimate.value == pytest.approx((1 - 0.4**4) - (1 - 0.7**4), abs=0.05)
    assert found.nulls == {"frozen": "silent: the base's weights, bit for bit"}
    arm = found.arms[0]
    assert (arm.spent["sampled_tokens"], arm.spent["iterations"], arm.spent["iterations (rl)"]) == (300, 3, 1)


def test_one_seed_is_a_curve(study: Study) -> None:
    measured(study, 0.6, seeds=(1,))
    found = selectors.findings_of(study)
    assert found.verdict == "quick run only"
    assert found.primary is not None
    assert found.primary.estimate.lo is None


def test_the_page_shows_claim_verdict_grid_and_figures(study: Study, client_of: Callable[[str], Client]) -> None:
    url = study.get_absolute_url()
    empty = unescape(client_of("viewer").get(url).content.decode())
    assert "Not run yet: 0 of 5 seeds" in empty
    assert empty.count("Queued") >= 9
    assert "Nothing has been measured yet" in empty
    measured(study, 0.6, seeds=(0, 1))
    page = unescape(client_of("member").get(url).content.decode())
    assert study.contract.claim in page
    assert "4 of 9 measured" in page
    assert "Every seed" in page
    assert "Quick run only" in page
    spec = client_of("viewer").get(reverse("studies:figure", args=(*study.url_args, "passk"))).json()
    assert [one["key"] for one in spec["series"]] == ["base", "grpo", "sps", "frozen", "chance"]
    listed = unescape(client_of("viewer").get(reverse("studies:index", args=study.project.url_args)).content.decode())
    assert "quick run only" in listed


def test_launching_and_stopping_from_the_page(cast: Cast, client_of: Callable[[str], Client]) -> None:
    url = reverse("studies:launch", args=cast.project.url_args)
    response = client_of("member").post(url, {"study": "sps", "form": "quick"})
    study = Study.objects.get()
    assert response["Location"] == study.get_absolute_url()
    assert study.members.filter(part=TRAIN).count() == 18
    assert client_of("member").post(url, {"study": "nothing", "form": "quick"}).status_code == 404
    client_of("member").post(reverse("studies:stop", args=study.url_args))
    assert set(Run.objects.values_list("state", flat=True)) == {RunState.CANCELLED}
    assert not Study.objects.get().open


def test_stopping_leaves_the_runs_of_other_studies(study: Study, cast: Cast) -> None:
    other = services.launch_study(cast.project, cast["member"], contract(claim="in other words"), "quick")
    assert services.stop_study(other, cast["member"]) == 0
    assert set(Run.objects.values_list("state", flat=True)) == {RunState.QUEUED}


def test_a_study_that_cannot_go_on_holds_up_no_other(study: Study, cast: Cast) -> None:
    """Its queue is no longer known to the installation."""
    other = services.launch_study(cast.project, cast["member"], contract(seeds=[0]), "quick")
    Study.objects.filter(pk=other.pk).update(queue="gone")
    assert [one.pk for one in Study.objects.all()] == [other.pk, study.pk], "the one in trouble comes first"
    finish(study.members.get(part=TRAIN, arm="sps", seed=0).run, "w-sps-0")
    services.follow()
    assert places(study, MEASURE) == [("", -1), ("sps", 0)]
    assert places(other, MEASURE) == [("", -1)]
