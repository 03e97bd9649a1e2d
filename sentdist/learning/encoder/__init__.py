"""The encoder: load pretrained models, tokenize, attend, pool, embed many sentences, export."""
