"""`python -m sentdist` is `sentdist`."""

from sentdist.cli.application import app

app()
