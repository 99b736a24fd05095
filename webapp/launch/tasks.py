"""What Celery calls: thin, safe to deliver twice."""

import logging
from pathlib import Path

from celery import shared_task

from webapp.launch import here
from webapp.launch.slots import NoSlot
from webapp.launch.supervisor import Supervisor
from webapp.runs.services import claim
from webapp.runs.storage import files_root

log = logging.getLogger(__name__)


@shared_task(name="launch.supervise", acks_late=True, ignore_result=True)
def supervise(attempt_id: int) -> None:
    """Claims the attempt and supervises its trainer to the end. A second delivery finds it claimed and does nothing.

    A worker that is leaving, draining or full starts nothing: the attempt stays queued, and the scheduler sends its
    message again.
    """
    if not here.takes_runs():
        return
    try:
        with here.slots().taken() as slot:
            held = claim(attempt_id, place=here.slots().place(slot))
            if held is None:
                log.info("Attempt %s is not to be started: it has a worker, or it is over.", attempt_id)
            else:
                Supervisor(held, root=Path(files_root()), slot=slot).run()
    except NoSlot:
        log.warning("Attempt %s stays queued: every slot of this worker is taken.", attempt_id)
