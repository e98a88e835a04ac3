"""Templates on keys: keys by skeleton, what a template says of them, who owns them, what is written."""
