"""The body of a scores stage: sentences embedded, tasks scored, probes and pictures; the tasks themselves stand in `stages/tasks`."""
