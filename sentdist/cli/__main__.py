"""`python -m sentdist.cli` is `sentdist`."""

from sentdist.cli.application import app

app()
