"""Where actors that outlive their jobs are found on a cluster, and where they live."""

from __future__ import annotations

NAMESPACE = "sentdist"
HEAD_RESOURCE = "node:__internal_head__"  # which Ray gives the head, and no other node
HEAD = {HEAD_RESOURCE: 0.001}  # what an actor asks for that is to live where the cluster itself lives
