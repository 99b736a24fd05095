"""What a valid form would run: how it differs from its preset, how much it samples, and what to think about before."""

from dataclasses import dataclass
from typing import Any

from trainer.data.tasks import make_task
from webapp.core.counts import counted
from webapp.launch.fields import MISSING, flat, groups_of, lines_of
from webapp.launch.forms import LaunchForm
from webapp.launch.services import InvalidConfig, resolved

HEADLINE_PROBLEMS = 200
HEADLINE_SAMPLES = 64


@dataclass(frozen=True)
class Difference:
    """One setting that is not at its preset's value; the values as text."""

    path: str
    title: str
    unit: str
    default: str
    value: str


@dataclass(frozen=True)
class Cost:
    """Upper bounds: what is sampled or seen when nothing ends early. `tokens` counts sampled tokens at full length."""

    title: str
    count: int
    unit: str
    tokens: int | None = None


def differences(form: LaunchForm, config: dict[str, Any]) -> list[Difference]:
    """Where the resolved configuration leaves the preset's, the base apart. Empty for an untouched form."""
    start: dict[str, Any] = {
        "kind": config["kind"],
        "policy": config["policy"],
        "task": {"name": config["task"]["name"]},
    }
    if config["kind"] == "rl":
        start["algorithm"] = {"preset": config["algorithm"]["preset"]}
        start["methods"] = [{"slug": choice["slug"]} for choice in config["methods"]]
    try:
        before = flat(resolved(start))
    except InvalidConfig:
        return []
    fields = {slot.path: slot.field for group in groups_of(form.choice) for slot in group.slots}
    out = []
    for path, value in flat(config).items():
        old = before.get(path, MISSING)
        if old == value or path.startswith(("policy.", "task.params.uri", "task.params.sha256")):
            continue
        # An entry of a list belongs to the list's input.
        field = fields.get(path) or fields.get(path.rpartition(".")[0])
        out.append(
            Difference(path, field.title if field else path, field.unit if field else "", shown(old), shown(value))
        )
    return out


def shown(value: Any) -> str:
    """A JSON value in a table."""
    if value is MISSING or value is None:
        return "—"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:.6g}"
    (text,) = lines_of([str(value)])
    return text


def costs(config: dict[str, Any]) -> list[Cost]:
    """What the run would sample, train and evaluate at most."""
    longest = config["sampling"]["max_new_tokens"]
    evaluation = config["evaluation"]
    out = []
    if config["kind"] == "rl":
        iterations = config["budget"]["iterations"]
        answers = iterations * config["algorithm"]["prompts_per_iteration"] * config["algorithm"]["num_generations"]
        out.append(Cost("Training answers", answers, "answers", answers * longest))
    if config["kind"] == "sft":
        out.append(Cost("Training rows", config["budget"]["iterations"] * config["sft"]["batch_size"], "rows"))
    if config["kind"] != "evaluate":
        every, iterations = evaluation["every"], config["budget"]["iterations"]
        times = 2 + ((iterations - 1) // every if every else 0)
        answers = times * evaluation["problems"] * evaluation["samples"]
        out.append(Cost(f"{times} validations", answers, "answers", answers * longest))
    times = 1 + len(config.get("temperatures", ()))
    if config.get("split") in ("validation", "both"):
        answers = times * evaluation["problems"] * evaluation["samples"]
        out.append(Cost("Evaluation on validation", answers, "answers", answers * longest))
    if config.get("split") == "validation":
        return out
    answers = times * evaluation["final_problems"] * evaluation["final_samples"]
    if answers:
        out.append(Cost("Final evaluation", answers, "answers", answers * longest))
    return out


def warnings(config: dict[str, Any]) -> list[str]:
    """What is allowed and still worth a thought."""
    out = []
    task = make_task(config["task"]["name"], config["task"]["params"])
    longest = config["sampling"]["max_new_tokens"]
    if longest < task.max_completion_chars + 1:
        out.append(
            f"A right answer can need {counted(task.max_completion_chars, 'character')} and the end of sequence, "
            f"and the longest answer is {counted(longest, 'token')}: "
            "with a character tokenizer some right answers would be cut off and count as wrong."
        )
    architecture = config["policy"].get("architecture")
    if architecture and architecture["max_positions"] < task.max_prompt_chars + longest:
        out.append(
            f"Prompts of up to {counted(task.max_prompt_chars, 'character')} and answers of "
            f"{counted(longest, 'token')} may not fit into {architecture['max_positions']} positions."
        )
    evaluation = config["evaluation"]
    if config.get("split") == "validation":
        out.append("Results are read off the test split; the validation split is for choosing.")
    elif not evaluation["final_problems"]:
        out.append("Without test problems there is no final evaluation, and the comparison falls back on validation.")
    elif evaluation["final_problems"] < HEADLINE_PROBLEMS or evaluation["final_samples"] < HEADLINE_SAMPLES:
        out.append(
            f"The final evaluation has {counted(evaluation['final_problems'], 'problem')} with "
            f"{counted(evaluation['final_samples'], 'sample')}; a "
            f"headline needs {HEADLINE_PROBLEMS} and {HEADLINE_SAMPLES}. Intervals will be wide, and pass@k ends at "
            f"k = {evaluation['final_samples']}."
        )
    if config["kind"] == "rl" and config["optimizer"]["learning_rate"] == 0:
        out.append("With learning rate 0 the policy is frozen: a control run, in which every alarm must stay silent.")
    return out
