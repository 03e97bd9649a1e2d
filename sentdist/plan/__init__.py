"""What to make: recipes, stages, plans. `sentdist.plan(recipe)` is `sentdist.api.plan`."""
