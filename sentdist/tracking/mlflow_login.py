"""Authenticate users at `mlflow server` (its `authorization_function`): by password, once per browser through a link."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from sentdist.tracking.views import LAYOUT

if TYPE_CHECKING:
    from flask import Response
    from werkzeug.datastructures import Authorization

LOGIN = "/login"
# Browser settings of MLflow 3.17, whose defaults are pages for language-model applications, a third of them covered by an assistant.
SETTINGS = {
    "mlflow.workflowType_v1": '"machine_learning"',
    "mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true",
    "mlflow.settings.telemetry.enabled_v1": "false",  # the server sends none either
    "mlflow.telemetry.info.alert.dismissed_v1": "true",
    "_mlflow_model_registry_promo_modal_dismissed_v1": "true",
}
PAGE = f"""<!doctype html><title>MLflow</title><script>
for (const [name, value] of Object.entries({json.dumps(SETTINGS)}))
  if (localStorage.getItem(name) === null) localStorage.setItem(name, value)
location.replace(location.origin + "/" + (location.hash || "#/experiments?{LAYOUT}"))
</script>"""


def authenticate() -> Authorization | Response:
    """Check a request as MLflow does; `/login` leads from a link with a password to an address without it.

    On a page whose address has a password, browsers refuse all requests of scripts (Fetch standard), and MLflow's pages stay empty.
    At `/login` the browser sends the password once, then opens what follows a `#` in the link, else the experiments.
    """
    from flask import Response, request
    from mlflow.server.auth import authenticate_request_basic_auth

    found = authenticate_request_basic_auth()
    if request.path == LOGIN and not isinstance(found, Response):
        return Response(PAGE, mimetype="text/html")
    return found
