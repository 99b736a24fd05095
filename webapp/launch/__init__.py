"""From a document to a supervised trainer: launching, the queue, the supervisor, and the scheduler's jobs."""
