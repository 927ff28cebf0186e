"""The book's build: which pages are stale, running them, rendering them, and its lists and plans."""
