"""How answers look: where they go, which side columns stand on, what is said of words that an encoder does not know."""

from __future__ import annotations

import pytest

from sentdist.cli import printing
from sentdist.cli.options import check_in_use, named_gpus, weights_of
from sentdist.cli.printing import sentence_progress
from sentdist.errors import DataError


def test_a_log_has_no_bar_and_is_shown_how_far_it_is_every_half_minute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It had one line for as many minutes as it took."""
    now = [100.0]
    monkeypatch.setattr(printing, "monotonic", lambda: now[0])
    with sentence_progress("encoding", 10_000) as advance:
        for seconds, done in ((20, 1000), (11, 2000), (28, 3000), (2, 4000)):
            now[0] += seconds
            advance(done)
    assert capsys.readouterr() == (
        "",
        "encoding: 2,000 of 10,000 sentences, 65 a second\nencoding: 4,000 of 10,000 sentences, 66 a second\n",
    )
    with sentence_progress("encoding", None) as advance:
        now[0] += 40
        advance(2000)
        now[0] += 40
        advance(2000, 4000)
    assert capsys.readouterr() == ("", "encoding: 2,000 sentences, 50 a second\nencoding: 2,000 of 4,000 sentences, 25 a second\n")


def test_what_was_given_is_refused_where_it_has_no_effect_also_if_it_is_nothing() -> None:
    for value in (0, 0.0, "", True, 1):
        check_in_use({"--x": value}, needs="--y", is_given=True)
        with pytest.raises(DataError) as refused:
            check_in_use({"--x": value}, needs="--y", is_given=False)
        assert (refused.value.where, refused.value.found) == ("--x", "no --y")
    check_in_use({"--x": None, "--z": False}, needs="--y", is_given=False)


def test_no_gpu_is_a_number_of_gpus() -> None:
    assert named_gpus(None, None) == {} and named_gpus(0.0, None) == {"gpus_per_worker": 0.0}
    assert named_gpus(0.5, "H100") == {"gpus_per_worker": 0.5, "gpu_type": "H100"} and named_gpus(None, "L4") == {"gpu_type": "L4"}
    assert named_gpus(2.0, None) == {"gpus_per_worker": 2.0}
    with pytest.raises(DataError, match="--gpus-per-worker"):
        named_gpus(1.5, None)


def test_relations_weigh_one_unless_said_and_are_named_once() -> None:
    assert weights_of(["a", "b=0.5", "c=0"]) == {"a": 1.0, "b": 0.5, "c": 0.0} and weights_of([]) == {}
    for given in (["a", "a=2"], ["a=inf"], ["a=-1"], ["=1"], ["a=nan"], ["a=x"]):
        with pytest.raises(DataError) as refused:
            weights_of(given)
        assert refused.value.where == "--relation" and refused.value.found.startswith(given[-1])
