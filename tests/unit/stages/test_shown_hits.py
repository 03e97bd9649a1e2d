"""The example of a search that a sweep ends with: one query, the nearest documents by each encoder."""

from __future__ import annotations

from pathlib import Path

from sentdist.data.retrieval import read_retrieval
from sentdist.stages.context import Context
from sentdist.stages.scores.embed_sentences import shown_hits
from sentdist.store.store import ArtifactStore
from tests.support.tasks_data import stage_of
from tests.support.tiny_data import write_data


def test_the_nearest_documents_of_one_query_are_marked_where_they_are_relevant(
    tiny_encoder_dir: Path, planted_encoder_dir: Path, tmp_path: Path
) -> None:
    data = write_data(tmp_path)
    stages, folders = {}, dict[str, str]()
    for label, folder in (("before", tiny_encoder_dir), ("after", planted_encoder_dir)):
        stages[label], resolver = stage_of(folder, ("stsb", "scenes-faq"), data)
        folders |= resolver.folders
    context = Context(store=ArtifactStore(tmp_path / "store"), data_root=str(data), folders=folders)
    hits = shown_hits(stages, context, num_hits=3, most_documents=1000)
    assert hits is not None and list(hits.found) == ["before", "after"]
    collection = read_retrieval("generated/faq")
    ids = dict(zip(collection.documents, collection.document_ids, strict=True))
    relevant = collection.qrels[collection.query_ids[collection.queries.index(hits.query)]]
    for found in hits.found.values():
        assert [is_relevant for _, is_relevant in found] == [ids[text] in relevant for text, _ in found] and len(found) == 3
    assert shown_hits(stages, context, num_hits=3, most_documents=10) is None, "a large collection takes too long"
    of_pairs, _ = stage_of(tiny_encoder_dir, ("stsb",), data)
    assert shown_hits({"only": of_pairs}, context, num_hits=3, most_documents=1000) is None
