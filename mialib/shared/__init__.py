"""What several wings share: files that are kept, checked YAML, the filter of near-duplicates."""
