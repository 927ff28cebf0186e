"""What single pages study: one file a study, its numbers and its recorded results."""
