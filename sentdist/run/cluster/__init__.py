"""Choose, check and join a Ray cluster; describe its nodes."""
