"""A method that works out each answer once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

Self = TypeVar("Self")
Given = ParamSpec("Given")
Answer = TypeVar("Answer")


def memoized(method: Callable[Concatenate[Self, Given], Answer]) -> Callable[Concatenate[Self, Given], Answer]:
    """Keep what a method answers, for each object by what it is given, as long as the object lives.

    For answers that nobody changes and that follow from the object and from hashable arguments. What raises is not kept.
    """
    name = f"_answers_of_{method.__name__}"

    @wraps(method)
    def answer(self: Self, *args: Given.args, **kwargs: Given.kwargs) -> Answer:
        answers: dict[Any, Answer] = self.__dict__.setdefault(name, {})
        given = (args, tuple(sorted(kwargs.items()))) if kwargs else args
        if given not in answers:
            answers[given] = method(self, *args, **kwargs)
        return answers[given]

    return answer
