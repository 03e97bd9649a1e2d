"""What to make: recipes, stages and plans."""
