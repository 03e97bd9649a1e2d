"""What papers printed: a file each, by the name that recipes call it; it says which of our cells stands for which printed row."""
