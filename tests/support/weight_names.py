"""Imported, it has transformers compile its table of renamed weights, as it does at the first encoder that a process loads."""

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("bert")
