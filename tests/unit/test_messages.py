"""Messages stay one line of bounded length, whatever value stands in them."""

from __future__ import annotations

import pickle
import time

from sentdist.errors import LONGEST, DataError, brief, counted, first_line, one_line
from tests.support.machine_speed import slower_than_reference


def test_a_message_is_one_line_of_bounded_length() -> None:
    for place in ["where", "found", "expected", "remedy"]:
        for value in ["x" * 10**8, "a\nb" * 10**7, "\ud800" * 10**7]:
            slower = slower_than_reference()
            began = time.process_time()
            error = DataError(**({"where": "w", "found": "f", "expected": "e", "remedy": "r"} | {place: value}))  # type: ignore[arg-type]
            assert time.process_time() - began < 2 * slower
            assert len(str(error)) < LONGEST[place] + 30 and len(str(error).splitlines()) == 1
            assert f"({len(value):,} letters)" in str(error)
            assert str(error).encode()  # what cannot be encoded ends a program while it prints


def test_a_cut_message_keeps_its_ends_and_survives_a_pickle() -> None:
    error = DataError(where="w", found=f"begin{'x' * 5000}end", expected="e", remedy="r")
    assert error.found.startswith("begin") and error.found.endswith("end")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.found) == (str(error), error.found)


def test_letters_that_move_the_cursor_are_shown_as_escapes() -> None:
    for letter in ["\x1b", "\n", "\r", "\x00", "\u2028", "\u202e", "\x9b"]:
        shown = one_line(f"a{letter}b", 100)
        assert letter not in shown and shown == f"a{letter.encode('unicode_escape').decode()}b"


def test_values_are_cut_however_they_are_built() -> None:
    deep: list[object] = []
    deep.append(deep)
    wide = [{"key": "x" * 1000}] * 10**6
    slower = slower_than_reference()
    for value in (deep, wide, 10**100_000, b"x" * 10**7, "y" * 10**7, {n: n for n in range(10**5)}):
        began = time.process_time()
        assert len(brief(value)) <= 160
        assert time.process_time() - began < slower
    assert brief("rcl") == "'rcl'" and brief(0.5) == "0.5" and brief([1, 2]) == "[1, 2]"


def test_an_error_without_a_text_is_reported_by_its_name() -> None:
    assert first_line(EOFError()) == "EOFError" and first_line(ValueError("one\ntwo")) == "one"


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "trial") for number in (0, 1, 2000)] == ["0 trials", "1 trial", "2,000 trials"]
    assert [counted(number, "query", "queries") for number in (1, 2000)] == ["1 query", "2,000 queries"]
