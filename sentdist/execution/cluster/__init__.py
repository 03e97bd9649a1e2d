"""The cluster itself: which one, whether it answers, what it is like at this moment."""
