"""Paraphrase sentences with a sequence-to-sequence model that the user names (SupMPN, Table A1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, PreTrainedTokenizerBase

from sentdist.errors import EncoderError, first_line
from sentdist.learning.encoder.declared import Checkpoint
from sentdist.learning.encoder.find_checkpoint import find_checkpoint
from sentdist.learning.encoder.pretrained import load_configuration, load_tokenizer, quiet
from sentdist.learning.precision import float32_products

TOP_P = 0.95  # as Parrot samples
SENTENCES_PER_BATCH = 64  # in another batch a sentence gets another paraphrase


def paraphrase(
    sentences: Sequence[str],
    *,
    checkpoint: str | Path | None,
    revision: str | None = None,
    prefix: str = "paraphrase: ",
    max_tokens: int = 64,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> list[str]:
    """Return a paraphrase of each sentence, in their order; the sentence itself where the model generates nothing.

    Words are sampled from the likeliest that hold 95 % of the probability, so that equal sentences get different paraphrases.
    The same seed, sentences and machine give the same paraphrases; torch's generators are restored afterwards.
    SupMPN uses Parrot, a T5, for about half of the entailments. Source: Dehghan and Amasyali 2022, Appendix A.1 (PP).

    Args:
        checkpoint: a folder or hub id (at `revision`) of an encoder-decoder (T5, BART …) trained to paraphrase.
        prefix: put before each sentence, as T5's task names are (Parrot: "paraphrase: ").
    Raises:
        EncoderError: no checkpoint is named or found, or it cannot generate text.
    """
    if checkpoint is None:
        raise EncoderError(
            where="augmentation.checkpoint",
            found="none",
            expected="a sequence-to-sequence model that paraphrases (a folder, or a hub id with its revision)",
            remedy="Name one, e.g. a T5 trained on paraphrases; sentdist includes none.",
        )
    folder = find_checkpoint(checkpoint, revision=revision)
    tokenizer, model = load_tokenizer(Checkpoint.open(folder)), _load(folder).to(device).eval()
    by_length = sorted(range(len(sentences)), key=lambda place: (len(sentences[place]), place))
    answers = list(sentences)
    with _seeded(seed, torch.device(device)), torch.inference_mode(), float32_products():
        for first in range(0, len(by_length), SENTENCES_PER_BATCH):
            places = by_length[first : first + SENTENCES_PER_BATCH]
            texts = _generate(model, tokenizer, [prefix + sentences[place] for place in places], max_tokens)
            for place, text in zip(places, texts, strict=True):
                answers[place] = text or sentences[place]
    return answers


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed the generators in use, then restore them. torch.manual_seed would seed all GPUs; fork_rng restores only the given ones."""
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        torch.random.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


def _generate(model: Any, tokenizer: PreTrainedTokenizerBase, texts: list[str], max_tokens: int) -> list[str]:
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=max_tokens, return_tensors="pt")
    written = model.generate(
        input_ids=inputs["input_ids"].to(model.device),
        attention_mask=inputs["attention_mask"].to(model.device),
        max_new_tokens=max_tokens,
        do_sample=True,
        num_beams=1,
        top_p=TOP_P,
        top_k=0,
    )
    return [text.strip() for text in tokenizer.batch_decode(written, skip_special_tokens=True)]


def _load(folder: Path) -> Any:  # transformers types neither `to` nor `generate`
    config = load_configuration(folder)
    try:
        if not config.is_encoder_decoder:
            raise ValueError(f"a {config.model_type}, which has no decoder")
        with quiet():
            return AutoModelForSeq2SeqLM.from_pretrained(folder, config=config, dtype=torch.float32, trust_remote_code=False)
    except Exception as error:  # as everywhere with transformers: no common ancestor
        raise EncoderError(
            where=f"paraphrase.checkpoint {folder}",
            found=first_line(error),
            expected="a sequence-to-sequence model such as T5 or BART",
            remedy="Name a checkpoint trained to paraphrase; an encoder cannot generate text.",
        ) from error
