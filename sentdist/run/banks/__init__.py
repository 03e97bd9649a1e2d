"""Hold, read and place embedding banks in Ray's object store."""
