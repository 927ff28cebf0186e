"""What a person reads: scores of texts, the auditor's report, a text token by token."""
