"""Where actors that outlive their jobs are found on a cluster, and where they live."""

from __future__ import annotations

NAMESPACE = "sentdist"
HEAD = {"node:__internal_head__": 0.001}  # they live where the cluster itself lives
