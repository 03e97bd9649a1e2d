"""Who builds what: the actor that starts every stage once, those who ask it, and what it says of work that does not move."""
