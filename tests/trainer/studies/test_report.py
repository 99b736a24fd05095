"""What was committed about studies is what the numbers give, and the report says it."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from tests.trainer.contract.test_findings import CLEAR, made, measured
from trainer.cli import main
from trainer.contract.findings import findings
from trainer.contract.results import StudyResults, study_hash
from trainer.methods import all_methods
from trainer.studies import committed_results, load_study, study_slugs
from trainer.studies.report import DOCS, publish_docs, section, svg, table_text, verdict_of

RUN = [slug for slug in study_slugs() if committed_results(slug)]


@pytest.mark.parametrize("slug", RUN)
def test_committed_findings_and_pages_are_computed_from_the_committed_numbers(slug) -> None:
    study, document = load_study(slug), committed_results(slug)
    assert document is not None
    results = StudyResults.model_validate(document["results"])
    assert results.study_hash == study_hash(study, results.form), (
        f"the study has changed since it ran: run {slug} again"
    )
    again = json.loads(json.dumps(findings(study, results).json()))
    assert document["findings"]["verdict"] == again["verdict"]
    assert document["findings"]["primary"]["estimate"]["value"] == pytest.approx(again["primary"]["estimate"]["value"])
    assert section(study, results) in (DOCS / f"{slug}.md").read_text(encoding="utf-8")


def test_a_picture_is_well_formed_and_names_every_arm() -> None:
    study = made(primary={"arm": "sps", "against": "grpo", "metric": "frontier@4"})
    picture = svg(study, measured(study, CLEAR))
    texts = [node.text for node in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert {"grpo", "slow", "sps", "base", "chance .000, below", "pass@1", "pass@4"} <= set(texts)


def test_the_table_tells_a_study_without_results_from_one_with() -> None:
    study = made()
    nothing = StudyResults(slug="small", form="full", study_hash=study_hash(study, "full"))
    assert "Not run yet: 0 of 5 seeds" in table_text(findings(study, nothing))
    assert svg(study, nothing)
    assert "Confirmed here: pass@1 of sps minus grpo: +0.2" in table_text(findings(study, measured(study, CLEAR)))


def test_a_second_report_replaces_the_section_and_keeps_the_rest(tmp_path) -> None:
    study = made()
    results = measured(study, CLEAR, seeds=range(1))
    page = tmp_path / "small.md"
    page.write_text("# Small\n\nBy hand.\n")
    publish_docs(study, None, docs=tmp_path)
    assert "**Verdict.** Not run yet." in page.read_text()
    assert "`k_rl`" in page.read_text(), "the method's parameters"
    publish_docs(study, results, docs=tmp_path)
    first = page.read_text()
    assert first.startswith("# Small\n\nBy hand.\n")
    assert "1 of 5 seeds have both sides" in first
    page.write_text(first + "\nMore by hand.\n")
    publish_docs(study, measured(study, CLEAR), docs=tmp_path)
    text = page.read_text()
    assert "Not run yet" not in text
    assert text.startswith("# Small\n\nBy hand.\n")
    assert text.endswith("More by hand.\n")


def test_methods_tell_their_verdict(capsys) -> None:
    assert main(["methods", "--json"]) == 0
    rows = {row["slug"]: row for row in json.loads(capsys.readouterr().out)}
    for slug in all_methods():
        assert rows[slug]["study"] == verdict_of(slug)
        assert {"title", "paper", "slots", "status", "derived"} <= set(rows[slug])
    assert verdict_of("no-such-study") == "not run yet"


def test_the_command_refuses_what_it_cannot_run(capsys, tmp_path) -> None:
    assert main(["study", "nothing", "--out", str(tmp_path)]) == 2
    assert "there are" in capsys.readouterr().err
    assert main(["study", "sps", "--arms", "nobody", "--out", str(tmp_path)]) == 2
    assert "no arm ['nobody']" in capsys.readouterr().err
