"""Files of texts, and checked YAML."""
