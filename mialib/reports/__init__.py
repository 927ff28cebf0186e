"""What a person reads: scores of texts, the auditor's report and its canaries, a text token by token."""
