"""Models that are asked over a network."""
