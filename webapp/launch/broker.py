"""A Redis that goes away must not cost a worker its ears."""

import logging
from typing import Any

from kombu.transport import redis

log = logging.getLogger(__name__)


class GivesBackIfItCan(redis.QoS):
    """Gives unacknowledged messages back to the broker when a channel closes, and lets the channel close without.

    When the connection is lost, kombu tries that over the lost connection; what it then raises ends Celery's consumer for
    good. A message that is not given back is no loss: the run's row is the truth, and the scheduler sends
    another message.
    """

    def restore_unacked(self, client: Any = None) -> None:
        try:
            super().restore_unacked(client)
        except Exception as error:
            log.warning("%s messages were not given back to Redis: %r", len(self._delivered), error)
            self._delivered.clear()


def outlive_redis() -> None:
    """For this process; before it connects."""
    redis.Channel.QoS = GivesBackIfItCan
