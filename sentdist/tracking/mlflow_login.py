"""How `mlflow server` lets people in (its setting `authorization_function`): by user and password, once per browser through one link."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from werkzeug.datastructures import Authorization
    from werkzeug.wrappers import Response

LOGIN = "/login"


def authenticate() -> Authorization | Response:
    """MLflow's own check, and a page that leads from a link with a password in it to the same address without.

    On a page whose address has a password browsers refuse each request of its scripts (Fetch standard), so MLflow's pages stay empty.
    Here the browser shows the password, learns that it is right, and is sent on; what follows a `#` in the link stays.
    """
    from flask import redirect, request
    from mlflow.server.auth import authenticate_request_basic_auth
    from werkzeug.wrappers import Response

    found = authenticate_request_basic_auth()
    if request.path == LOGIN and not isinstance(found, Response):
        return redirect(f"{request.scheme}://{request.host}/")  # MLflow has checked that the host is one of its own
    return found
