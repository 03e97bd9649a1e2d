"""Report of a search: who wins at which budget, what dev chose, which settings matter."""
