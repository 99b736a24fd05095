"""What trainers elsewhere send and get."""

from rest_framework import serializers

from webapp.api.serializers.common import Strict, TextField
from webapp.runs.states import RunState

ENDS = [RunState.FINISHED.value, RunState.STOPPED.value, RunState.FAILED.value]


class ClaimBody(Strict):
    """Who takes the attempt."""

    worker = TextField(max_length=100, help_text="What pages call this trainer: a host's name, for instance.")


class ClaimSerializer(serializers.Serializer):
    """The right to send events of one attempt."""

    run = serializers.CharField()
    attempt = serializers.IntegerField()
    claim = serializers.CharField(help_text="For the header X-Claim. It is not shown again.")
    lease_seconds = serializers.IntegerField(help_text="Who gives no sign of life for longer has lost the run.")
    config = serializers.DictField(help_text="What to run.")


class HeartbeatSerializer(serializers.Serializer):
    """The claim holds."""

    stop = serializers.BooleanField(help_text="Save the state and leave, then say how it ended.")
    lease_seconds = serializers.IntegerField()


class AcceptedSerializer(serializers.Serializer):
    """By writer, the number of the last event that is stored."""

    accepted_through = serializers.DictField(child=serializers.IntegerField())


class EndBody(Strict):
    """How the attempt ended."""

    state = serializers.ChoiceField(ENDS)
    exit_code = serializers.IntegerField(min_value=0, max_value=255, required=False, allow_null=True)
    message = TextField(max_length=2000, required=False, allow_blank=True)
