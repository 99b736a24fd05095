"""The launch form: its inputs come from the contract, its words too, and nothing typed is lost."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.http import QueryDict
from django.test import Client
from django.utils import timezone

from trainer.contract.presets import PRESETS
from trainer.data.tasks import PROCEDURAL
from trainer.methods import all_methods, resolve
from webapp.checkpoints.models import Checkpoint
from webapp.launch.fields import Choice, flat, groups_of
from webapp.launch.forms import LaunchForm
from webapp.launch.preview import differences
from webapp.launch.services import resolved
from webapp.projects.models import Project
from webapp.runs.models import Run

LAUNCH = "/p/lab/countdown/launch/"
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_messages_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.launch.services._send", lambda attempt_id: None)


@pytest.fixture
def base(project: Project) -> Checkpoint:
    return checkpoint(project, "demo base")


def checkpoint(project: Project, name: str, **fields: Any) -> Checkpoint:
    uri = f"checkpoints/{project.pk}/{name.replace(' ', '-')}"
    values = {"weights_hash": f"w-{name}", "final": True, "created_at": timezone.now(), "policy_uri": uri, **fields}
    return Checkpoint.objects.create(project=project, name=name, uri=uri, **values)


def inputs_of(page: str) -> dict[str, list[str]]:
    """What a browser would send for the launch form of a page."""
    form = page[page.index('id="launch-form"') : page.index('<dialog class="dialog" id="paste"')]
    out: dict[str, list[str]] = {}
    for tag in re.findall(r"<input[^>]*>", form):
        name, value = re.search(r'name="([^"]*)"', tag), re.search(r'value="([^"]*)"', tag)
        if name is None or (re.search(r'type="(radio|checkbox)"', tag) and " checked" not in tag):
            continue
        out.setdefault(name[1], []).append(unescape(value[1]) if value else "")
    for name, inner in re.findall(r'<select[^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.S):
        chosen = re.search(r'<option value="([^"]*)" selected', inner) or re.search(r'<option value="([^"]*)"', inner)
        assert chosen is not None
        out[name] = [unescape(chosen[1])]
    for name, text in re.findall(r'<textarea[^>]*name="([^"]*)"[^>]*>(.*?)</textarea>', form, re.S):
        out[name] = [unescape(text).strip()]
    return out


def page_of(client: Client, address: str = LAUNCH) -> dict[str, list[str]]:
    return inputs_of(client.get(address).content.decode())


def test_an_untouched_form_launches_the_preset(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    response = client.post(LAUNCH, page_of(client))
    run = Run.objects.get()
    assert response.status_code == 302
    assert response["Location"] == run.get_absolute_url()
    assert run.config == resolved({"kind": "rl", "policy": {"checkpoint": base.policy_uri}})
    assert run.name == "grpo · countdown · seed 0"
    assert [one.checkpoint for one in run.inputs.all()] == [base]


def test_a_launch_into_a_queue_that_nobody_serves_is_taken_with_a_warning(
    base: Checkpoint, client_of: Callable[[str], Client], settings: Any
) -> None:
    settings.QUEUES = ["default", "h200"]
    client = client_of("member")
    form = client.get(LAUNCH).context["form"]
    assert [label for _, label in form.about.fields["queue"].widget.choices] == [
        "default (no worker now)", "h200 (no worker now)"
    ]  # fmt: skip
    sent = page_of(client)
    assert "known queues are default, h200" in client.post(LAUNCH, sent | {"queue": ["h100"]}).content.decode()
    assert not Run.objects.exists()
    taken = client.post(LAUNCH, sent | {"queue": ["h200"], "auto_resume": ["0"]}, follow=True)
    assert "No live worker serves the queue h200" in taken.content.decode()
    run = Run.objects.get()
    assert (run.queue, run.auto_resume) == ("h200", 0)
    copy = client.get(LAUNCH, {"from": run.pk}).context["form"].about
    assert (copy["queue"].value(), copy["auto_resume"].value()) == ("h200", "0")


def test_a_new_run_is_in_the_list_at_once(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    client.post(LAUNCH, {**page_of(client), "name": "the very first"})
    assert "the very first" in client.get("/p/lab/countdown/runs/").content.decode()


def test_sending_the_form_twice_launches_once(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    sent = page_of(client)
    first, second = client.post(LAUNCH, sent), client.post(LAUNCH, sent)
    assert first["Location"] == second["Location"]
    assert Run.objects.count() == 1


def test_going_back_and_changing_something_launches_another_run(
    base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    client = client_of("member")
    sent = page_of(client)
    client.post(LAUNCH, sent)
    client.post(LAUNCH, {**sent, "seed": "1"})
    assert sorted(Run.objects.values_list("seed", flat=True)) == [0, 1]


def test_the_id_of_another_projects_run_is_not_taken_over(
    cast: Any, base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    client = client_of("member")
    sent = page_of(client)
    Run.objects.create(pk=sent["run"][0], project=cast.other_project, name="theirs", kind="rl", config={})
    response = client.post(LAUNCH, sent)
    assert response.status_code == 302
    assert Run.objects.get(pk=sent["run"][0]).name == "theirs"
    assert Run.objects.filter(project=cast.project).count() == 1


def test_a_wrong_number_is_refused_at_its_input_and_everything_typed_stays(
    base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    client = client_of("member")
    sent = page_of(client) | {
        "algorithm.num_generations": ["1"], "optimizer.learning_rate": ["fast"], "notes": ["why not"],
        "budget.iterations": ["7"],
    }  # fmt: skip
    page = client.post(LAUNCH, sent).content.decode()
    assert not Run.objects.exists()
    kept = inputs_of(page)
    assert {name: kept[name] for name in sent if name != "csrfmiddlewaretoken"} == {
        name: value for name, value in sent.items() if name != "csrfmiddlewaretoken"
    }
    assert "Nothing was launched." in page
    at_rate = page[page.index('data-errors="f-optimizer-learning_rate"') :][:400]
    assert "should be a valid number" in at_rate
    assert "&#x27;fast&#x27;" in at_rate


def test_rules_between_settings_are_told_at_the_setting_to_change(project: Project, base: Checkpoint) -> None:
    form = LaunchForm.from_document(
        project, {"kind": "rl", "policy": {"checkpoint": base.policy_uri}, "algorithm": {"num_generations": 1}}
    )
    assert form.config is None
    one = form.find("algorithm.num_generations")
    assert one is not None
    assert one.errors == ["group advantages need at least 2 rollouts per prompt (found 1)"]


@pytest.mark.parametrize("who", ["viewer", "outsider"])
def test_who_may_not_launch_changes_nothing(who: str, base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    sent = page_of(client_of("member"))
    assert client_of(who).post(LAUNCH, sent).status_code == {"viewer": 403, "outsider": 404}[who]
    assert not Run.objects.exists()


# What there is to fill in


@pytest.mark.parametrize("what", [*all_methods(), "sft", "evaluate"])
def test_every_setting_of_the_contract_has_an_input(what: str) -> None:
    """A default document, flattened, has no path without a slot, the structural ones apart."""
    spec = all_methods().get(what)
    kind, methods = (what, ()) if spec is None else ("rl", (what,))
    fresh: dict[str, Any] = {"policy": {"architecture": {}}, "kind": kind}
    if spec is not None:
        fresh |= {"methods": [{"slug": what}], "algorithm": {"preset": (*spec.bases, "grpo")[0]}}
    config = resolve(fresh).model_dump(mode="json")
    choices = [Choice(kind=kind, methods=methods, fresh=fresh) for fresh in (True, False)]
    groups = [group for choice in choices for group in groups_of(choice, secrets=["HF_TOKEN"])]
    slots = {slot.path for group in groups for slot in group.slots}
    structural = {"kind", "schema_version", "policy.checkpoint", "task.name", "algorithm.preset", "methods"}
    # Entries of a list belong to the list's input. An evaluation trains no adapter.
    paths = {re.sub(r"^(policy\.lora\.targets)\.\d+$", r"\1", p) for p in flat(config)}
    paths -= {p for p in paths if kind == "evaluate" and p.startswith("policy.lora.")}
    missing = {p for p in paths if p not in slots | structural and not re.fullmatch(r"methods\.\d+\.slug", p)}
    assert not missing


def test_every_input_is_on_the_page(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    response = client_of("member").get(LAUNCH)
    shown = set(re.findall(r' name="([^"]*)"', response.content.decode()))
    wanted = {slot.name for group in groups_of(response.context["form"].choice) for slot in group.slots}
    assert not wanted - shown


@pytest.mark.parametrize("task", list(PROCEDURAL))
@pytest.mark.parametrize("preset", list(PRESETS))
@pytest.mark.parametrize("methods", [(), ("sps",)])
def test_untouched_defaults_resolve_to_the_same_as_no_values(
    task: str, preset: str, methods: tuple[str, ...], project: Project, base: Checkpoint
) -> None:
    document = {
        "kind": "rl", "policy": {"checkpoint": base.policy_uri}, "task": {"name": task},
        "algorithm": {"preset": preset}, "methods": [{"slug": slug} for slug in methods],
    }  # fmt: skip
    form = LaunchForm.from_document(project, document)
    assert form.config == resolved(document)
    assert differences(form, form.config) == []


def test_names_of_inputs_are_unique() -> None:
    names = [slot.name for group in groups_of(Choice(methods=tuple(all_methods()), fresh=True)) for slot in group.slots]
    assert len(names) == len(set(names))


# Changing a choice


def post(fields: dict[str, Any]) -> QueryDict:
    data = QueryDict(mutable=True)
    for name, value in fields.items():
        data.setlist(name, value if isinstance(value, list) else [value])
    return data


def test_another_preset_replaces_untouched_values_and_keeps_touched_ones(
    base: Checkpoint, client_of: Callable[[str], Client], project: Project
) -> None:
    sent = page_of(client_of("member")) | {"algorithm.preset": ["trl-grpo"], "algorithm.prompts_per_iteration": ["5"]}
    form = LaunchForm.from_post(project, post(sent))
    config = form.config
    assert config is not None
    assert config["algorithm"]["num_generations"] == 8
    assert config["algorithm"]["adv_eps"] == 1e-4
    assert config["algorithm"]["prompts_per_iteration"] == 5
    assert [row.path for row in differences(form, config)] == ["algorithm.prompts_per_iteration"]


def test_another_kind_brings_its_own_defaults(
    base: Checkpoint, client_of: Callable[[str], Client], project: Project
) -> None:
    form = LaunchForm.from_post(project, post(page_of(client_of("member")) | {"kind": ["sft"]}))
    config = form.config
    assert config is not None
    assert (config["optimizer"]["learning_rate"], config["budget"]["iterations"]) == (1e-3, 1000)
    assert config["optimizer"]["schedule"] == "cosine"


def test_parts_shows_the_parameters_of_a_method_that_is_ticked(
    base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    client = client_of("member")
    fragment = client.post(f"{LAUNCH}parts", page_of(client) | {"methods": ["sps"]}).content.decode()
    assert 'name="methods.sps.params.alpha"' in fragment
    assert "<html" not in fragment


def test_a_methods_wrong_parameter_is_told_at_its_input(
    base: Checkpoint, client_of: Callable[[str], Client], project: Project
) -> None:
    client = client_of("member")
    sent = page_of(client, f"{LAUNCH}?method=sps") | {"methods.sps.params.alpha": ["-1"]}
    form = LaunchForm.from_post(project, post(sent))
    assert form.config is None
    (one,) = [one for one in form.inputs if one.errors]
    assert (one.slot.path, one.slot.name) == ("methods.0.params.alpha", "methods.sps.params.alpha")
    assert "greater than or equal to 0.01" in one.errors[0]


def test_an_empty_box_of_a_limit_means_no_limit(
    base: Checkpoint, client_of: Callable[[str], Client], project: Project
) -> None:
    sent = page_of(client_of("member"), LAUNCH) | {
        "algorithm.preset": ["verl-grpo"],
        "was.algorithm.preset": ["verl-grpo"],
        "algorithm.dual_clip": [""],
        "budget.iterations": [""],
    }
    config = LaunchForm.from_post(project, post(sent)).config
    assert config is not None
    assert config["algorithm"]["dual_clip"] is None
    assert config["budget"]["iterations"] == 60


def test_an_unticked_box_is_false(base: Checkpoint, client_of: Callable[[str], Client], project: Project) -> None:
    sent = page_of(client_of("member"))
    assert sent["algorithm.std_unbiased"] == ["false", "true"]
    form = LaunchForm.from_post(project, post(sent | {"algorithm.std_unbiased": ["false"]}))
    assert form.config is not None
    assert form.config["algorithm"]["std_unbiased"] is False


# The base


def test_without_a_checkpoint_the_form_offers_fine_tuning_from_fresh_weights(
    client_of: Callable[[str], Client], project: Project
) -> None:
    sent = page_of(client_of("member"))
    assert (sent["kind"], sent["policy.source"]) == (["sft"], ["new"])
    config = LaunchForm.from_post(project, post(sent)).config
    assert config is not None
    assert config["policy"]["architecture"]["hidden_size"] == 128


def test_a_base_of_another_project_is_refused(cast: Any, base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    theirs = checkpoint(cast.other_project, "secret")
    client = client_of("member")
    response = client.post(LAUNCH, page_of(client) | {"policy.source": [theirs.policy_uri]})
    assert "Nothing was launched." in response.content.decode()
    assert "is no checkpoint of this project" in response.content.decode()
    assert client.get(f"{LAUNCH}?base={theirs.pk}").status_code == 404


@pytest.mark.parametrize("path", ["/etc", "../../secrets", "runs/zzzzzzzzzz/attempts/1"])
def test_a_path_of_the_host_is_no_base(path: str, base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    page = client.post(LAUNCH, page_of(client) | {"policy.source": [path]}).content.decode()
    assert "Nothing was launched." in page
    assert not Run.objects.exists()


def test_a_base_without_files_says_so(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    sent = page_of(client)
    base.removed_at = timezone.now()
    base.save()
    response = client.post(LAUNCH, sent)
    assert "Nothing was launched." in response.content.decode()
    assert "were removed by retention" in response.content.decode()


def test_the_picker_tells_where_a_checkpoint_comes_from(
    base: Checkpoint, client_of: Callable[[str], Client], project: Project
) -> None:
    client = client_of("member")
    client.post(LAUNCH, page_of(client) | {"name": "first stage"})
    run = Run.objects.get()
    checkpoint(project, "first stage 60", run=run, attempt=1, iteration=60)
    names = {b.name: b.lineage for b in LaunchForm.empty(project).bases}
    assert names == {"demo base": "imported", "first stage 60": "iteration 60 of first stage ← demo base (imported)"}


# Documents in and out


def test_a_duplicate_starts_from_the_runs_configuration(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    changes = {"methods": ["sps"], "methods.sps.params.alpha": ["0.25"], "budget.iterations": ["9"], "tags": ["a, b"]}
    client.post(LAUNCH, page_of(client, f"{LAUNCH}?method=sps") | changes)
    first = Run.objects.get()
    sent = page_of(client, f"{LAUNCH}?from={first.pk}")
    assert sent["methods.sps.params.alpha"] == ["0.25"]
    client.post(LAUNCH, sent)
    second = Run.objects.exclude(pk=first.pk).get()
    assert second.config == first.config
    assert second.parent == first
    assert second.tags == ["a", "b"]


def test_texts_stand_one_a_line_and_come_back_with_their_line_breaks(
    base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    client = client_of("member")
    client.post(LAUNCH, page_of(client) | {"sampling.stop": ["\\n\\n\r\n</a> \r\n\r\n"]})
    first = Run.objects.get()
    assert first.config["sampling"]["stop"] == ["\n\n", "</a> "]
    form = LaunchForm.from_document(first.project, first.config)
    rows = [(row.title, row.value) for row in differences(form, first.config) if row.path.startswith("sampling.")]
    assert rows == [("Stop strings", "\\n\\n"), ("Stop strings", "</a> ")]
    page = client.get(f"{LAUNCH}?from={first.pk}").content.decode()
    assert ">\\n\\n\n&lt;/a&gt; </textarea>" in page
    assert re.search(r'data-words="stop strings[^>]*data-default=""[^>]*data-changed', page)


def test_the_document_is_downloaded_resolved(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    response = client.post(f"{LAUNCH}config.json", page_of(client))
    assert response["Content-Disposition"] == 'attachment; filename="config.json"'
    assert json.loads(response.content) == resolved({"kind": "rl", "policy": {"checkpoint": base.policy_uri}})


def test_a_pasted_document_fills_the_form(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    document = {
        "kind": "rl", "policy": {"checkpoint": base.policy_uri}, "task": {"name": "maze", "params": {"size": 7}},
        "algorithm": {"preset": "rloo", "prompts_per_iteration": 4}, "sampling": {"max_new_tokenz": 3},
    }  # fmt: skip
    page = client_of("member").post(f"{LAUNCH}fill", {"document": json.dumps(document)}).content.decode()
    sent = inputs_of(page)
    assert (sent["task.name"], sent["task.params.maze.size"]) == (["maze"], ["7"])
    assert (sent["algorithm.preset"], sent["algorithm.prompts_per_iteration"]) == (["rloo"], ["4"])
    assert "unknown setting &#x27;max_new_tokenz&#x27;; did you mean &#x27;max_new_tokens&#x27;?" in page
    assert not Run.objects.exists()


def test_a_file_fills_the_form(base: Checkpoint, client_of: Callable[[str], Client], tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"kind": "evaluate", "policy": {"checkpoint": base.policy_uri}, "seed": 12}))
    with path.open("rb") as file:
        page = client_of("member").post(f"{LAUNCH}fill", {"file": file}).content.decode()
    assert (inputs_of(page)["kind"], inputs_of(page)["seed"]) == (["evaluate"], ["12"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": ["rl"]}', "found [&#x27;rl&#x27;], expected one of"),
        ('{"kind": "rl", "seed": ' + "9" * 5000 + "}", "A number has too many digits; at most 4300 can be read."),
    ],
)
def test_values_that_python_refuses_are_explained(
    text: str, said: str, base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    response = client_of("member").post(f"{LAUNCH}fill", {"document": text})
    assert response.status_code == 200
    assert said in response.content.decode()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"kind": "rl"}', "<code>policy</code>: is required"),
        ("[1]", "the document: expected a JSON object, found list"),
    ],
)
def test_errors_of_a_document_are_not_called_left_out(
    text: str, said: str, base: Checkpoint, client_of: Callable[[str], Client]
) -> None:
    page = client_of("member").post(f"{LAUNCH}fill", {"document": text}).content.decode()
    assert "The document has errors" in page
    assert said in page
    assert "Part of the document was left out" not in page


def test_a_document_over_the_limit_of_a_form_is_told_the_limit(client_of: Callable[[str], Client]) -> None:
    response = client_of("member").post(f"{LAUNCH}fill", {"document": "x" * 2_700_000})
    assert response.status_code == 413
    assert "larger than 2.5\xa0MB" in response.content.decode()


def test_automatic_names_are_numbered_within_the_project(base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    for _ in range(3):
        client.post(LAUNCH, page_of(client))
    names = sorted(Run.objects.values_list("name", flat=True))
    assert names == [f"grpo · countdown · seed 0{number}" for number in ("", " · 2", " · 3")]


@pytest.mark.parametrize(
    "text", ["", "{", "[" * 100_000, "null", "[1]", '"rl"', '{"kind": 3}', '{"kind": "rl", "methods": {"a": 1}}',
             '{"kind": "rl", "policy": 1, "task": [], "algorithm": "x"}', '{"kind": "rl", "algorithm": {"preset": []}}',
             '{"kind": "rl", "task": {"params": []}, "methods": [1, {"slug": []}, {"params": {}}]}', '{"seed": {"a": 1}}'],
)  # fmt: skip
def test_no_document_breaks_the_page(text: str, base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    response = client_of("member").post(f"{LAUNCH}fill", {"document": text})
    assert response.status_code == 200
    assert "launch-form" in response.content.decode()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"kind": "nonsense"},
        {"methods": "no-such"},
        {"task.name": "no-such"},
        {"seed": "1" * 39},
        {"seed": "9" * 22},
        {"run": "x"},
        {"name": "n" * 300},
    ],
)
def test_no_post_breaks_the_page(fields: dict[str, str], base: Checkpoint, client_of: Callable[[str], Client]) -> None:
    client = client_of("member")
    sent = page_of(client) | fields if fields else {}
    assert "Nothing was launched." in client.post(LAUNCH, sent).content.decode()
    assert client.post(f"{LAUNCH}preview", sent).status_code == 200
    assert client.post(f"{LAUNCH}parts", sent).status_code == 200
    assert not Run.objects.exists()


def test_the_algorithms_settings_are_folded_under_headings_and_a_changed_one_opens_its_own(project: Project) -> None:
    document = {"kind": "rl", "policy": {"architecture": {}}, "algorithm": {"preset": "dapo", "kl_target": 0.1}}
    group = LaunchForm.from_document(project, document).by_key["algorithm"]
    titles = [fold.title for fold in group.folds]
    assert titles == [
        "Advantage", "Value head", "Ratio and surrogate", "Aggregation", "KL to the base", "Entropy", "What is trained", "Steps",
    ]  # fmt: skip
    assert [fold.title for fold in group.folds if fold.unfold] == ["KL to the base"]
    shown = {one.slot.name for one in group.plain}
    assert {"algorithm.zero_variance", "algorithm.epsilon_high", "algorithm.kl_coef"} <= shown
    assert "algorithm.gamma" not in shown
