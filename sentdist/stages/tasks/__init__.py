"""How each kind of task reads its texts and scores an encoder."""
