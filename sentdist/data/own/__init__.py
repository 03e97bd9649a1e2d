"""Read a user file: its files and encoding, the meaning of its columns, its split into train, dev and test."""
