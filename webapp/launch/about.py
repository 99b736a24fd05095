"""The part of the launch form that is about the run and not in its configuration: name, tags, notes, queue."""

import re
from typing import Any

from django import forms
from django.conf import settings
from django.core.exceptions import ValidationError

from webapp.launch.selectors import queue_names, served_queues
from webapp.launch.services import DEFAULT_QUEUE, check_queue
from webapp.runs.models import Run, new_run_id

_RUN_ID = re.compile(r"^[a-z2-9]{10}$")


class AboutForm(forms.Form):
    """What is not part of the configuration. `run` is the id that the run will have: sending twice makes one run."""

    name = forms.CharField(required=False, max_length=120, label="Name", help_text="Empty: method, task and seed.")
    tags = forms.CharField(required=False, max_length=200, label="Tags", help_text="Words with commas between them.")
    notes = forms.CharField(
        required=False,
        max_length=10_000,
        label="Notes",
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text="Why you launch this.",
    )
    queue = forms.CharField(
        required=False, max_length=40, label="Queue", widget=forms.Select, help_text="Which workers may take it."
    )
    auto_resume = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=100,
        label="Automatic resumes",
        help_text="In a row without a new checkpoint, when something outside ends it; 0: never.",
    )
    run = forms.CharField(widget=forms.HiddenInput)
    parent = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        chosen, served = str(self["queue"].value() or DEFAULT_QUEUE), served_queues()
        known = queue_names()
        names = known if chosen in known else [*known, chosen]
        widget = self.fields["queue"].widget
        assert isinstance(widget, forms.Select)
        widget.choices = [(name, name if name in served else f"{name} (no worker now)") for name in names]
        self.fields["auto_resume"].widget.attrs["placeholder"] = settings.AUTO_RESUME

    def clean_queue(self) -> str:
        name: str = self.cleaned_data["queue"] or DEFAULT_QUEUE
        try:
            check_queue(name)
        except ValidationError as error:
            raise forms.ValidationError(error.message_dict["queue"]) from error
        return name

    def clean_run(self) -> str:
        token: str = self.cleaned_data["run"]
        if not _RUN_ID.match(token):
            raise forms.ValidationError("The form's own number is damaged; reload the page.")
        return token

    @property
    def tag_list(self) -> list[str]:
        return [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]


def new_about(**initial: str) -> AboutForm:
    """An untouched form about a run with a fresh id."""
    return AboutForm(initial={"run": new_run_id(), **initial})


def about_copy_of(run: Run) -> AboutForm:
    """For "duplicate and edit"."""
    limit = {} if run.auto_resume is None else {"auto_resume": str(run.auto_resume)}
    return new_about(tags=", ".join(run.tags), parent=run.pk, queue=run.queue, **limit)
