"""All files of users go through `sentdist.files`; who reads without it is named here with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "sentdist"
READERS = {
    "read_table", "ParquetFile", "read_schema", "read_json", "read_csv", "memory_map", "open_file", "load_file", "safe_open", "load", "loads",
    "from_pretrained", "read_text", "read_bytes", "open", "open_bytes", "open_text", "whole_text", "unpacked_stream", "from_file", "open_memmap",
}  # fmt: skip
GUARDS = {"reading", "_reading", "_readable"}
# function -> why it may read by itself
ALLOWED = {
    "cli/options.py:_methods": "a file of bounded size; looks for names, replaces what is no UTF-8",
    "files.py:code_digest": "its own sources",
    "data/sources/files.py:read_arrow": "called under reading",
    "data/sources/releases.py:_rows": "called under tables, which guards",
    "data/sources/file_facts.py:content_digest": "of a file that was read a moment ago",
    "data/sources/file_facts.py:recall_note": "a cache: what cannot be read counts as absent",
    "data/sources/files.py:_parse": "called under _reading",
    "data/sources/files.py:_read_lines": "called under reading",
    "data/sources/files.py:read_text_table": "called under reading",
    "data/sources/json_lines.py:_value": "has a guard of its own; given a line",
    "data/sources/json_lines.py:values_in": "called under reading; given a text",
    "data/sources/releases.py:cqadupstack_parts": "called under read, which guards",
    "data/sources/releases.py:_lines": "called under read, which guards",
    "data/sources/releases.py:_scidocs": "called under read, which guards",
    "data/sources/releases.py:_str2022": "called under read, which guards",
    "data/sources/separated.py:encoding_of": "called under reading",
    "data/sources/separated.py:read_separated": "called under reading",
    "data/sources/separated.py:read": "called under reading",
    "data/sources/separated.py:_are_quoted": "called under reading",
    "data/tagging.py:tagger_revision": "the source of a module that was imported",
    "data/tagging.py:read_counts": "what another process of this run has just written",
    "data/tagging.py:_write_rows": "writes",
    "data/texts.py:_opened": "called under texts.py's _readable",
    "data/texts.py:batches": "called under texts.py's _readable",
    "data/texts.py:shape": "called under texts.py's _readable",
    "files.py:sync_file": "opened for fsync alone: nothing is read",
    "learning/bank_shape.py:bank_shape": "has a guard of its own; given a text",
    "learning/encoder/onnx.py:_padded_model": "a folder that was loaded a moment ago",
    "learning/encoder/tokens.py:merge_shards": "what this run has just written",
    "learning/encoder/tokens.py:tokenizer_digest": "what it has just written",
    "learning/paraphrase.py:_load": "has a guard of its own",
    "learning/kernels/cpp_library.py:_digest": "its own sources",
    "learning/kernels/cpp_library.py:_is_whole": "its own cache, in a folder of this user alone; what cannot be read is a reason for no kernels",
    "learning/kernels/cpp_library.py:_processor": "/proc/cpuinfo",
    "learning/kernels/cpp_library.py:_sha256": "as _is_whole",
    "learning/kernels/cpp_library.py:_make_openmp_visible": "/proc/self/maps",
    "report/kept_report.py:_fetch": "has a guard of its own; what cannot be read is drawn again",
    "plan/schema.py:keep_schema_of": "a recipe that was loaded a moment ago; the schema is compared as bytes",
    "plan/stage.py:in_words_of_today": "what it has just written",
    "plan/wording.py:parsed_yaml": "has a guard of its own; given a text",
    "files.py:open_bytes": "what calls it is looked at here",
    "files.py:open_text": "what calls it is looked at here",
    "files.py:whole_text": "what calls it is looked at here",
    "stages/banks.py:finish": "what this process has just written",
    "stages/planning/resolve.py:_check_length": "called under reading",
    "stages/learning_curve.py:go_on": "called under stages/train.py's load; given a text",
    "machine.py:_values": "/proc/cpuinfo",
    "inference/export.py:average_encoders": "artifacts, which are checked where they are found",
    "stages/rungs.py:save_on_ranks": "what this rank has just written",
}
OTHERS = (
    "store/",
    "execution/",
    "tracking/",
    "services/",  # what it noted itself, in a folder that is its owner's alone
    "learning/checkpoint.py",
    "learning/engine.py",
    "stages/train.py",
    "files.py",
)  # own guards


def _reads(path: Path) -> Iterator[str]:
    """function: call, for each call of a reader outside a guard, by its innermost function."""

    def walk(node: ast.AST, function: str, guarded: bool) -> Iterator[str]:
        if isinstance(node, ast.FunctionDef):
            function, guarded = node.name, False
        if isinstance(node, ast.With):
            calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
            guarded = guarded or any(isinstance(call.func, ast.Name) and call.func.id in GUARDS for call in calls)
        if isinstance(node, ast.Call) and not guarded and _is_reader(node):
            yield function
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function, guarded)

    yield from walk(ast.parse(path.read_text()), "", False)


def _is_reader(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id in READERS - {"read_json"}  # that name alone is ours
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in READERS:
        return False
    owner, name = ast.unparse(call.func.value), call.func.attr
    if name in ("load", "loads"):
        return owner in ("np", "torch", "json", "yaml")
    if name == "open":  # Path.open or a class's own; a mode other than r writes
        modes = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
        return owner not in ("OpenedCorpus", "TokenTable", "reader", "self._source") and not any(str(mode)[:1] in "wax" for mode in modes)
    return True


def test_no_reader_goes_round_the_guard() -> None:
    found = set()
    for path in sorted(ROOT.rglob("*.py")):
        place = path.relative_to(ROOT).as_posix()
        if not place.startswith(OTHERS):
            found |= {f"{place}:{function}" for function in _reads(path)}
    assert not found - ALLOWED.keys(), f"read files under sentdist.files.reading: {sorted(found - ALLOWED.keys())}"
    assert not ALLOWED.keys() - found, f"these do not read any more: {sorted(ALLOWED.keys() - found)}"
