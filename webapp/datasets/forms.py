"""The upload form, and the mapping as a form: columns of the file → parts of a problem."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.conf import settings


class UploadForm(forms.Form):
    """A file and the dataset that it becomes a version of."""

    name = forms.CharField(max_length=80, label="Name", help_text="What the dataset is called in this project.")
    file = forms.FileField(
        label="File",
        help_text="JSONL, JSON, CSV, TSV or Parquet, each also .gz; or a save_to_disk folder packed as .tar, .tar.gz or .zip.",
        widget=forms.ClearableFileInput(attrs={"accept": ".jsonl,.ndjson,.json,.csv,.tsv,.parquet,.gz,.tar,.tgz,.zip"}),
    )

    def __init__(self, *args: Any, dataset_name: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limit_gb = settings.UPLOAD_LIMIT_BYTES // 10**9
        if dataset_name:
            del self.fields["name"]


SPLITS = ("train", "validation", "test")


class MappingForm(forms.Form):
    """A mapping document with its inputs. Columns are free text with the file's own as suggestions, because a dotted path
    may lead into lists (`messages.0.content`). What is wrong with a mapping is said by the trainer's own command.
    """

    prompt = forms.CharField(max_length=200, label="Prompt", help_text="Text, or messages with role and content.")
    suffix = forms.CharField(
        required=False, max_length=2000, strip=False, label="Text after the prompt",
        help_text="Appended to the last user message.",
    )  # fmt: skip
    system = forms.CharField(
        required=False, max_length=200, label="System prompt", help_text="A column, if there is one."
    )
    system_text = forms.CharField(
        required=False, max_length=5000, label="System prompt for all rows", widget=forms.Textarea(attrs={"rows": 2})
    )
    answer = forms.CharField(required=False, max_length=200, label="Gold answer", help_text="Empty: fine-tuning only.")
    gold = forms.ChoiceField(label="Gold is")
    options = forms.CharField(
        required=False,
        max_length=200,
        label="Options",
        help_text="Of multiple-choice problems; they are added to the prompt.",
    )
    answer_type = forms.ChoiceField(
        label="Answer type", help_text="The comparer that judges. auto: by each row's gold answer."
    )
    extract = forms.MultipleChoiceField(
        label="Where an answer stands",
        widget=forms.CheckboxSelectMultiple,
        help_text="The first place that holds one is used.",
    )
    literal = forms.BooleanField(
        required=False, label="Literal number required", help_text="7×13 is wrong where the gold answer is 91."
    )
    abs_tol = forms.FloatField(min_value=0, initial=0, required=False, label="Absolute tolerance")
    rel_tol = forms.FloatField(min_value=0, initial=0, required=False, label="Relative tolerance")
    case_sensitive = forms.BooleanField(required=False, label="Case matters", help_text="For text answers.")
    completion = forms.CharField(
        required=False, max_length=200, label="Worked solution", help_text="For fine-tuning: a text or messages."
    )
    id = forms.CharField(required=False, max_length=200, label="Id")
    split = forms.CharField(
        required=False,
        max_length=200,
        label="Split",
        help_text="A column with train, validation or test. Empty: by hash.",
    )
    meta = forms.CharField(
        required=False, max_length=2000, label="Kept along", help_text="Columns with commas between them."
    )
    train = forms.FloatField(min_value=0, max_value=1, label="Train")
    validation = forms.FloatField(min_value=0, max_value=1, label="Validation")
    test = forms.FloatField(min_value=0, max_value=1, label="Test")
    carve = forms.MultipleChoiceField(
        required=False, choices=[("validation", "validation"), ("test", "test")], widget=forms.CheckboxSelectMultiple,
        label="Taken from train", help_text="Splits that the file lacks.",
    )  # fmt: skip
    duplicates = forms.ChoiceField(
        label="Repeated problems", choices=[("drop", "Keep the first of each"), ("keep", "Keep all")]
    )
    skip_broken = forms.BooleanField(
        required=False, label="Skip broken rows", help_text="Otherwise one broken row refuses the import."
    )
    format = forms.CharField(required=False, widget=forms.HiddenInput)

    COLUMN_FIELDS = ("prompt", "system", "answer", "options", "completion", "id", "split")
    GROUPS = (
        ("Problem", ("prompt", "suffix", "system", "system_text", "options")),
        ("Answer", ("answer", "gold", "answer_type", "extract", "literal", "abs_tol", "rel_tol", "case_sensitive")),
        ("Besides", ("completion", "id", "meta")),
        ("Splits and rows", ("split", "train", "validation", "test", "carve", "duplicates", "skip_broken")),
    )

    def __init__(self, *args: Any, choices: Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["gold"].choices = list(choices["gold"].items())  # type: ignore[attr-defined]
        self.fields["answer_type"].choices = [(one, one) for one in choices["answer_type"]]  # type: ignore[attr-defined]
        self.fields["extract"].choices = list(choices["extract"].items())  # type: ignore[attr-defined]
        for name in self.COLUMN_FIELDS:
            self.fields[name].widget.attrs |= {"list": "columns", "spellcheck": "false", "autocomplete": "off"}

    @classmethod
    def of(cls, mapping: Mapping[str, Any], *, choices: Mapping[str, Any]) -> "MappingForm":
        """The form that shows a mapping."""
        checking, shares = mapping["checking"], mapping["shares"]
        initial = {
            **mapping,
            **shares,
            **{name: checking[name] for name in CHECKING},
            "meta": ", ".join(mapping["meta"]),
        }
        return cls(initial=initial, choices=choices)

    @property
    def groups(self) -> list[tuple[str, list[Any]]]:
        """Bound fields by group."""
        return [(title, [self[name] for name in names]) for title, names in self.GROUPS]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        shares = [cleaned.get(name) for name in SPLITS]
        if all(isinstance(one, float) for one in shares) and abs(sum(shares) - 1) > 1e-6:  # type: ignore[arg-type]
            self.add_error("train", f"The shares add up to {sum(shares):g}, expected 1.")  # type: ignore[arg-type]
        return cleaned

    def mapping(self) -> dict[str, Any]:
        """The mapping document of a valid form."""
        c = self.cleaned_data
        order: Sequence[str] = [value for value, _ in self.fields["extract"].choices]  # type: ignore[attr-defined]
        return {
            "format": c["format"] or "by_hand",
            "prompt": c["prompt"].strip(),
            "suffix": c["suffix"],
            "system_text": c["system_text"],
            "gold": c["gold"],
            "answer_type": c["answer_type"],
            **{name: c[name].strip() or None for name in ("system", "answer", "options", "completion", "id", "split")},
            "meta": [name.strip() for name in c["meta"].split(",") if name.strip()],
            "checking": {
                "extract": [one for one in order if one in c["extract"]],
                "literal": c["literal"],
                "abs_tol": c["abs_tol"] or 0.0,
                "rel_tol": c["rel_tol"] or 0.0,
                "case_sensitive": c["case_sensitive"],
            },
            "shares": {name: c[name] for name in SPLITS},
            "carve": list(c["carve"]),
            "duplicates": c["duplicates"],
            "skip_broken": c["skip_broken"],
        }


CHECKING = ("extract", "literal", "abs_tol", "rel_tol", "case_sensitive")
