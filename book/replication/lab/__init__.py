"""Models whose training set is known: corpora that a coin deals out, and the models trained on them."""
