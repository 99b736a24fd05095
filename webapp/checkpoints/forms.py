"""The form of a project's retention."""

from django import forms

from webapp.checkpoints.models import Retention


class RetentionForm(forms.ModelForm):  # type: ignore[type-arg]
    """What is kept of every run."""

    class Meta:
        model = Retention
        fields = ("keep", "keep_best", "best_metric", "automatic")
        labels = {
            "keep": "Newest of every run",
            "keep_best": "Best of every run",
            "best_metric": "Best by",
            "automatic": "Apply every day",
        }

    field_order = ("keep", "keep_best", "best_metric", "automatic")

    def clean_keep(self) -> int:
        keep: int = self.cleaned_data["keep"]
        if keep < 1:
            raise forms.ValidationError("At least the newest one of every run is kept.")
        return keep
