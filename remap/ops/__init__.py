"""What a rule may do beside renaming, one op a file. See ``base`` for what an op is."""
