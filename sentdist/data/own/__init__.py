"""A person's own file: how its text is written, what its columns hold, which of its rows are held out."""
