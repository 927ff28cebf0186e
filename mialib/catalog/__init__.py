"""What a name means: models, benchmarks and reference corpora of the hub, the papers, the lab and APIs."""
