"""Use finished encoders: encode files, score pairs, search corpora, evaluate, export."""
