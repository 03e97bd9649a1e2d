"""How many tokens of a sentence are those of the prompt before it, and whether they leave room and are pooled."""

from __future__ import annotations

from pathlib import Path

from sentdist.errors import EncoderError, brief
from sentdist.learning.encoder.declared import declared_pooling, leaves_prompt_out
from sentdist.learning.encoder.tokenizing import Tokenizer


def tokens_of_prompt(tokenizer: Tokenizer, prompt: str) -> int:
    """Tokens before those of the sentence, that which opens it among them; 0 without a prompt."""
    if not prompt:
        return 0
    ids: list[int] = tokenizer(prompt)["input_ids"]
    return len(ids) - (bool(ids) and ids[-1] in tokenizer.all_special_ids)


def check_room(prompt: str, num_tokens: int, *, longest: int, checkpoint: str) -> None:
    """EncoderError for a prompt of so many tokens that leaves none for a sentence of `longest` tokens: all embeddings would be alike."""
    if num_tokens + 1 >= longest:  # a special token closes most sentences
        raise EncoderError(
            where=f"encoder {checkpoint}",
            found=f"the prompt {brief(prompt)} of {num_tokens} tokens",
            expected=f"one that leaves room for a sentence within {longest} tokens",
            remedy="Shorten it, or allow for longer sentences.",
        )


def tokens_not_pooled(num_tokens: int, *, folder: Path, pooling: str, checkpoint: str) -> int:
    """Those of a prompt of so many tokens, where the folder has them left out of the pooling that it declares; else 0.
    checkpoint: as it was named."""
    is_left_out = num_tokens and pooling == declared_pooling(folder) and leaves_prompt_out(folder, checkpoint)
    return num_tokens if is_left_out else 0
