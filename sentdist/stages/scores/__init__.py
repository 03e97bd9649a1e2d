"""Build a scores stage: embed sentences, score tasks, run probes, sample embeddings for plots. Tasks are in `stages/tasks`."""
