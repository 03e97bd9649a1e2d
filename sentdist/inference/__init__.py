"""Finished encoders in use: files of sentences embedded, pairs compared, corpora searched, folders for others."""
