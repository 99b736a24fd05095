"""What happens, as it happens: one broadcaster a process reads the database, streams wait on queues."""
