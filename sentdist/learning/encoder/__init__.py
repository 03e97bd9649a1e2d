"""The encoder: a pretrained model, its batches and pooling, how it embeds many sentences, and how it is written to disk."""
