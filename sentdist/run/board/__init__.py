"""Start each stage once for all jobs of a store, report its progress, and diagnose work that hangs."""
