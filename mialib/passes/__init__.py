"""From names to stored passes: what a detector needs, computed once."""
