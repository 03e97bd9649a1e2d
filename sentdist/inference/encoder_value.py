"""Parse how a user names an encoder: ENCODER[?key=value&…], or a YAML file with the same keys."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from sentdist.errors import EncoderError, brief, did_you_mean, listed
from sentdist.files import reading
from sentdist.recipe.specs import PRECISIONS, AskedPrompts, EncoderUse

PROMPTS = {"prompt": "sentence", "query_prompt": "query", "document_prompt": "document"}  # key -> field of AskedPrompts
ENCODER_KEYS = ("revision", "pooling", "max_length", "precision", "normalize", *PROMPTS)
FLAGS = {"true": True, "false": False}


def parse_encoder(value: str) -> EncoderUse:
    """Parse `minilm-l6?max_length=128&pooling=cls`, or the name of a YAML file with `checkpoint` and these keys.

    Values are percent-decoded, so that a prompt may hold `%26`. A relative `checkpoint` in a file is relative to the working directory.

    Raises:
        EncoderError: no name, an unknown key or an invalid value. DataError: the file cannot be read. RecipeError: invalid YAML.
    """
    where = f"encoder {value}"
    given = _of_file(Path(value), where) if Path(value).suffix in (".yaml", ".yml") else _of_text(value, where)
    fields: dict[str, str | int | bool | None] = {}
    prompts: dict[str, str] = {}
    for key, text in given.items():
        expected = "text"
        if key in PROMPTS:
            prompts[PROMPTS[key]] = text
            continue
        if key == "max_length":
            expected, fields[key] = "a whole number, 1 or more", int(text) or None if text.isdecimal() else None
        elif key == "normalize":
            expected, fields[key] = "true or false", FLAGS.get(text.lower())
        elif key == "precision":
            expected, fields[key] = f"one of {', '.join(PRECISIONS)}", text if text in PRECISIONS else None
        else:
            fields[key] = text or None
        if fields[key] is None:
            raise EncoderError(where=f"{where}: {key}", found=brief(text), expected=expected, remedy="Correct it.")
    return EncoderUse(**fields, prompts=AskedPrompts(**prompts))  # type: ignore[arg-type]


def _of_text(value: str, where: str) -> dict[str, str]:
    name, mark, settings = value.partition("?")
    pairs = [pair.partition("=") for pair in settings.split("&")] if mark else []
    return _checked([("checkpoint", name), *((key, unquote(text) if equals else None) for key, equals, text in pairs)], where)


def _of_file(path: Path, where: str) -> dict[str, str]:
    from sentdist.recipe.wording import MOST_BYTES, parsed_yaml

    with reading(path, expected=f"a file with checkpoint and, if needed, {listed(ENCODER_KEYS)}", most_bytes=MOST_BYTES):
        text = path.read_text(encoding="utf-8")
    values = parsed_yaml(text, where=where, expected="valid YAML", remedy="Correct the line named.")
    if not isinstance(values, dict) or "checkpoint" not in values:
        raise EncoderError(where=where, found="no checkpoint", expected="a mapping with checkpoint", remedy="Add it.")
    scalars = {key: str(value) if isinstance(value, str | int) else None for key, value in values.items()}
    return _checked(list(scalars.items()), where)


def _checked(pairs: list[tuple[str, str | None]], where: str) -> dict[str, str]:
    """The pairs as a mapping; EncoderError for unknown or repeated keys, and keys without a value."""
    known = ("checkpoint", *ENCODER_KEYS)
    for number, (key, text) in enumerate(pairs):
        if key not in known or text is None or key in [one for one, _ in pairs[:number]]:
            raise EncoderError(
                where=where, found=f"{key} without a value" if text is None else f"{key} twice" if key in known else f"unknown key {key}",
                expected=f"ENCODER?key=value&… with {listed(ENCODER_KEYS)}", remedy=did_you_mean(key, known, "Correct it."),
            )  # fmt: skip
    return {key: text for key, text in pairs if text is not None}
