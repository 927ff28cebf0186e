"""Reports for people: what `mialib detect` prints."""
