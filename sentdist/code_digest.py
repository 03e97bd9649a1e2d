"""A digest of this package's code, by which results of other code are recognised."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path


@cache
def code_digest() -> str:
    """Sixteen hex digits of all modules and templates of this package, by name and content."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(path for kind in ("py", "jinja") for path in root.rglob(f"*.{kind}")):
        digest.update(f"{path.relative_to(root)}:".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
