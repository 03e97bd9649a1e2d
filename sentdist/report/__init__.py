"""Records in, tables and figures out. `sentdist.report(sweep)` is `sentdist.api.report`."""
